"""Mixed precision: which numbers are bf16 and which float32, that a run learns the same, and how it is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headway import dtype as dtypes
from headway.data.order import StepShare
from headway.errors import UserError
from headway.ops.attend import Additive, attend
from headway.training import calibration, defaults
from headway.training.build import batches_of, describe_timing, learner_of
from headway.training.calibration import timed, with_dtype
from headway.training.defaults import training_memory
from headway.training.learner import Learner
from headway.training.plan import Plan
from headway.training.recipe_sources import RecipeLayers, begun_with, read_layers, resolve, to_yaml
from headway.training.resuming import check_same, resumed_plan
from headway.training.run import begin, resolved_yaml
from tests.train.disks import same
from tests.train.runs import FAMILIES, MORE, STEPS, Trial, data_in, planned

BF16 = {"train.dtype": "bf16"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_convolution"}
# softmax, its parts and its relatives; losses; the optimiser; roots and norms of vectors
FLOAT32 = {
    *("_softmax", "_log_softmax", "exp", "log", "logsumexp", "_ctc_loss", "nll_loss_forward", "mse_loss"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "_ctc_loss_backward", "nll_loss_backward"),
    *("_fused_adamw_", "_fused_adam_", "lerp_", "pow", "sqrt", "rsqrt", "linalg_vector_norm"),
}


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder


class Dtypes(TorchDispatchMode):
    """Counts operations by their name and the floating dtypes that they read and write, backward pass included."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Counter[tuple[str, frozenset[torch.dtype]]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = [
            one for one in tree_leaves((args, kwargs, out)) if isinstance(one, Tensor) and one.is_floating_point()
        ]
        self.seen[func.overloadpacket.__name__, frozenset(one.dtype for one in leaves)] += 1
        return out

    def of(self, names: set[str], dtype: torch.dtype) -> set[str]:
        return {name for name, used in self.seen if name in names and dtype in used}


def first_step(made: Plan) -> tuple[Learner, list[Any]]:
    return learner_of(made), next(iter(batches_of(made)(1, 2)))


@pytest.mark.long
@pytest.mark.parametrize("name", [*FAMILIES, *MORE])
def test_products_are_bf16_and_sums_float32(name: str) -> None:
    """A step of every family: what its forward pass, its backward pass and its optimiser compute in."""
    learner, batches = first_step(planned(name, **BF16))
    exact = learner_of(planned(name)).learn(1, batches)
    with Dtypes() as trace:
        low = learner.learn(1, batches)
    assert trace.of(PRODUCTS, torch.bfloat16)
    assert trace.of(FLOAT32, torch.bfloat16) == set()
    assert trace.of(FLOAT32, torch.float32)
    kept = [tensor for tensors in learner.tensors().values() for tensor in tensors.values()]
    assert {tensor.dtype for tensor in kept if tensor.is_floating_point()} <= {torch.float32, torch.float64}
    assert not low.skipped
    assert low.loss == pytest.approx(exact.loss, rel=0.02)
    assert low.norm == pytest.approx(exact.norm, rel=0.1)


@pytest.mark.slow
def test_the_loss_and_its_gradients_are_float32() -> None:
    learner, [batch, *_] = first_step(planned("gpt2", **BF16))
    with learner.forward_pass():
        loss = learner.loss(learner.model, batch)
    loss.backward()
    assert loss.dtype == torch.float32
    assert {weight.grad.dtype for weight in learner.model.parameters() if weight.grad is not None} == {torch.float32}
    assert not torch.is_autocast_enabled("cpu")


def test_evaluations_compute_in_float32() -> None:
    made = planned("gpt2", **BF16)
    model, batches = learner_of(made).model.eval(), made.encoded.validation
    with Dtypes() as trace:
        found = made.task.validate(model, batches, [])
    assert not any(torch.bfloat16 in used for _, used in trace.seen)
    assert found.values == made.task.validate(model, batches, []).values


@pytest.mark.parametrize("norm", ["layer", "batch", "group", "rms"])
def test_norms_of_bf16_are_computed_in_float32(norm: str) -> None:
    """What they get is rounded and what they give is; what is between is not."""
    x, weight = torch.randn(6, 40, 5).bfloat16(), torch.randn(40)
    norms: dict[str, Callable[[Tensor], Tensor]] = {
        "layer": lambda x: F.layer_norm(x.mT, (40,), weight.to(x.dtype) if x.dtype is torch.float32 else weight),
        "batch": lambda x: F.batch_norm(x, None, None, weight, training=True),
        "group": lambda x: F.group_norm(x, 4, weight),
        "rms": lambda x: F.rms_norm(x.mT, (40,), weight.to(x.dtype)),
    }
    step = torch.finfo(torch.bfloat16).eps
    assert_close(norms[norm](x).float(), norms[norm](x.float()), rtol=2 * step if norm == "rms" else step, atol=1e-6)


@pytest.mark.parametrize("explicit", [False, True])
def test_softmax_of_attention_adds_in_float32(explicit: bool) -> None:
    """2,000 equal keys: in bf16 a sum of them would stop at 256."""
    q, k, v = (torch.ones(1, 1, 2000, 8) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16), Dtypes() as trace:
        score: dict[str, Any] = {"score": Additive(torch.ones(8) / 8)} if explicit else {}
        y = attend(q[:, :, :2], k, v, **score)
    assert_close(y.float(), torch.ones_like(y, dtype=torch.float32), rtol=0.01, atol=0)
    assert trace.of({"_softmax"}, torch.bfloat16) == set()
    assert bool(trace.of({"_softmax"}, torch.float32)) == explicit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "transformer", "masked"])
def test_the_loss_falls_as_in_float32(name: str) -> None:
    """Each of 24 steps within 2 % of the loss in float32, and it does fall: by 20 % at least."""
    curves = dict[str, list[float]]()
    for dtype in ("fp32", "bf16"):
        made = planned(name, **{"train.dtype": dtype})
        learner, steps = learner_of(made), batches_of(made)(1, STEPS + 1)
        found = [learner.learn(at, batches) for at, batches in enumerate(steps, 1)]
        curves[dtype] = [one.loss / one.targets for one in found]
    assert curves["bf16"] != curves["fp32"]
    assert curves["bf16"] == pytest.approx(curves["fp32"], rel=0.02)
    assert curves["bf16"][-1] < 0.8 * curves["bf16"][0]


@pytest.mark.long
@pytest.mark.parametrize("name", ["transformer", "mixtral", "resnet"])
def test_a_run_that_is_cut_and_resumed_is_the_same(name: str, tmp_path: Path) -> None:
    made = planned(name, **BF16)
    whole, cut = Trial(made, tmp_path / "whole"), Trial(planned(name, **BF16), tmp_path / "cut")
    for trial in (whole, cut):
        trial.folder.mkdir()
    assert whole.run().step == STEPS
    for at, step in enumerate((1, 7, 16)):
        assert cut.run(step, resume=at > 0).step == step
    assert cut.run(resume=True).signal is None
    (first, metrics), (second, others) = whole.left(), cut.left()
    assert metrics == others
    assert same(first, second)


# ---- how it is chosen


class Machine:
    """A CPU with bf16 instructions or without, and a clock that steps of either precision move on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, able: bool, fp32: float = 1.0, bf16: float = 1.0):
        self.now, self.steps = 0.0, list[torch.dtype]()
        seconds, learn = {torch.float32: fp32, torch.bfloat16: bf16}, Learner.learn

        def timed_learn(learner: Learner, step: int, batches: Any) -> Any:
            self.steps.append(learner.dtype)
            self.now += seconds[learner.dtype] * (3 if len(self.steps) < 3 else 1)  # the first ones load libraries
            return learn(learner, step, batches)

        monkeypatch.setattr(Learner, "learn", timed_learn)
        monkeypatch.setattr(calibration, "has_instructions", lambda dtype: able)

    def clock(self) -> float:
        return self.now


def asked(dtype: str, **more: str) -> Plan:
    return planned("gpt2", **{"train.dtype": dtype, **more})


def test_without_instructions_fp32_is_chosen_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, able=False)
    made, why = with_dtype(asked("auto"), machine.clock)
    assert (made.recipe.train.dtype, why, machine.steps) == ("fp32", "fp32: this CPU has no bf16 instructions", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fp32", "bf16", "chosen", "why", "steps"),
    [
        (0.36, 0.2, "bf16", "bf16: 1.8 × as fast as fp32, 3 steps each", 8),
        (0.036, 0.02, "bf16", "bf16: 1.8 × as fast as fp32, 15 steps each", 32),
        (0.21, 0.2, "fp32", "fp32: bf16 is 1.05 × as fast, 3 steps each", 8),
        (0.2, 0.4, "fp32", "fp32: bf16 is 0.50 × as fast, 3 steps each", 8),
        (0.2, 4.0, "fp32", "fp32: bf16 is 0.05 × as fast, 1 step each", 2),
    ],
)
def test_with_instructions_the_faster_is_chosen(
    fp32: float, bf16: float, chosen: str, why: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, True, fp32, bf16)
    made, said = with_dtype(asked("auto"), machine.clock)
    assert (made.recipe.train.dtype, said) == (chosen, why)
    assert machine.steps == [torch.float32, torch.bfloat16] * (steps // 2)  # in turn


@pytest.mark.slow
def test_a_precision_whose_copies_of_the_weights_do_not_fit_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, plan = Machine(monkeypatch, True, 0.36, 0.2), asked("auto")
    monkeypatch.setattr(defaults, "resident_memory", lambda: 0)
    recipe = replace(plan.recipe, train=replace(plan.recipe.train, dtype="fp32"))
    exact = training_memory(plan.config, recipe, plan.encoded).total
    for limit, chosen in ((exact, "fp32"), (2 * exact, "bf16")):
        monkeypatch.setattr(defaults, "memory_limit", lambda limit=limit: round(limit))
        made, said = with_dtype(plan, machine.clock)
        assert made.recipe.train.dtype == chosen
        assert (said == "fp32: bf16 copies of weights exceed memory") == (chosen == "fp32")


def test_what_was_asked_for_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for able, dtype, why in [
        (True, "fp32", "fp32"),
        (False, "fp32", "fp32"),
        (True, "bf16", "bf16"),
        (False, "bf16", "bf16, slower than fp32: this CPU has no bf16 instructions"),
    ]:
        machine = Machine(monkeypatch, able)
        made, said = with_dtype(asked(dtype), machine.clock)
        assert (made.recipe.train.dtype, said, machine.steps) == (dtype, why, [])


@pytest.mark.slow
def test_the_plan_tells_the_choice_and_the_recipe_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, True, 0.36, 0.2)
    made, timing = timed(asked("auto"), machine.clock)
    assert made.recipe.train.dtype == "bf16"
    assert describe_timing(made, timing)[0].startswith("  dtype   bf16: 1.8 × as fast as fp32, 3 steps each  ")
    assert set(machine.steps[8:]) == {torch.bfloat16}  # the pace is that of the precision that was chosen
    assert timing.step == pytest.approx(0.2)
    assert "dtype: bf16\n" in to_yaml(made.recipe)


@pytest.mark.slow
def test_minutes_are_made_into_steps_of_the_chosen_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, True, 2.0, 1.0)
    minutes = {"train.steps": "none", "train.minutes": "2", "train.evaluate_every": "1000"}
    made, timing = timed(asked("auto", **minutes), machine.clock)
    assert (made.recipe.train.dtype, made.recipe.train.steps) == ("bf16", 120)
    assert timing.minutes == 2


@pytest.mark.slow
def test_one_of_several_processes_times_its_own_share(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, True, 0.36, 0.2)
    made, timing = timed(replace(asked("auto"), share=StepShare(1, 2, split=True)), machine.clock)
    assert (made.recipe.train.dtype, timing.step) == ("bf16", pytest.approx(0.2))


@pytest.mark.slow
def test_a_large_model_is_compared_by_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, layers = Machine(monkeypatch, True, 0.3, 0.1), list[int]()
    monkeypatch.setattr(calibration, "predicted_seconds", lambda made: 1000.0)
    build = Plan.build

    def noted(made: Plan) -> Any:
        layers.append(made.config.layers)
        return build(made)

    monkeypatch.setattr(Plan, "build", noted)
    made, why = with_dtype(asked("auto", **{"model.layers": "3"}), machine.clock)
    assert (made.recipe.train.dtype, made.config.layers, layers) == ("bf16", 3, [1])
    assert why == "bf16: 3.0 × as fast as fp32, 3 steps each"


def test_a_resolved_recipe_has_a_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "has_instructions", lambda dtype: True)
    monkeypatch.setattr(calibration, "compared", lambda made, clock: (2.0, 3))
    layers = read_layers({**FAMILIES["gpt2"], "train.steps": "3"}, environ={})
    assert "dtype: bf16\n" in resolved_yaml(layers)


@pytest.mark.parametrize(("written", "resumed"), [("bf16", "bf16"), (None, "fp32")])
def test_a_resumed_run_has_the_precision_it_began_with(
    written: str | None, resumed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an earlier version began, whose recipe does not name it, computes in float32."""
    made = planned("gpt2", **BF16, out=str(tmp_path / "run"))
    begin(made)
    recipe = made.out / "recipe.yaml"
    if written is None:
        recipe.write_text(recipe.read_text().replace("  dtype: bf16\n", ""))
    monkeypatch.setattr(calibration, "has_instructions", lambda dtype: True)
    monkeypatch.setattr(calibration, "compared", lambda made, clock: pytest.fail("nothing is measured again"))
    again = resumed_plan(RecipeLayers().with_options({"out": made.out}))
    assert with_dtype(again)[0].recipe.train.dtype == resumed
    for given, agrees in (("auto", True), (resumed, True), ({"bf16": "fp32", "fp32": "bf16"}[resumed], False)):
        layers = read_layers({"out": str(made.out), "train.dtype": given}, environ={})
        if agrees:
            check_same(layers, resolve(begun_with(recipe)), made.out)
        else:
            with pytest.raises(UserError, match=rf"has train\.dtype = {resumed}; leave it out"):
                check_same(layers, resolve(begun_with(recipe)), made.out)


@pytest.mark.parametrize(("value", "said"), [("bf15", "did you mean 'bf16'"), ("float16", "auto, fp32, bf16")])
def test_a_bad_precision_is_refused_in_one_sentence(value: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read_layers({"train.dtype": value}, environ={})
    assert str(caught.value).startswith(f"--train.dtype {value} is not a choice")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_instructions_that_end_the_process_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine may announce AMX and not let it run."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(dtypes, "PRODUCT", "import os; os.kill(os.getpid(), 4)")
    machine = Machine(monkeypatch, True, 2.0, 1.0)
    made, why = with_dtype(asked("auto"), machine.clock)
    assert (made.recipe.train.dtype, why, machine.steps) == ("fp32", "fp32: bf16 does not run on this machine", [])
    with pytest.raises(
        UserError, match=r"bf16 does not run on this machine, .*; use fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
    ):
        with_dtype(asked("bf16"), machine.clock)
    monkeypatch.setattr(dtypes, "PRODUCT", "pass")
    assert with_dtype(asked("auto"), machine.clock)[1] == "bf16: 2.0 × as fast as fp32, 3 steps each"
