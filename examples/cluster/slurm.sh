#!/bin/bash
# Two nodes with eight GPUs each: sbatch examples/cluster/slurm.sh
# torchrun runs once on each node and starts a process for each GPU; the first node is the rendezvous.
#SBATCH --job-name=headway
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue

set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export HEADWAY_CACHE=$SCRATCH/headway  # tokenized data: on a disk that all nodes see, and fast

srun torchrun \
  --nnodes "$SLURM_NNODES" \
  --nproc-per-node 8 \
  --rdzv-backend c10d \
  --rdzv-id "$SLURM_JOB_ID" \
  --rdzv-endpoint "$first:29500" \
  -m headway train "$SCRATCH/text/*.parquet" \
  --preset gpt2 \
  --device cuda \
  --train.batch 32768 \
  --train.steps 100000 \
  --train.workers 4 \
  --out "$SCRATCH/runs/gpt2"
