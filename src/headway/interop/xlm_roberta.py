"""XLM-RoBERTa in Hugging Face's layout: RoBERTa under another name."""

from headway.interop.roberta import configs, keymap, settle

__all__ = ["keymap", "read_config", "settle", "write_config"]

read_config, write_config = configs("xlm-roberta", "XLMRoberta", vocab=30_522)
