"""Defects against the laws of whole models of images."""

from __future__ import annotations

from tests.laws.defects.planting import Mutant, change, instead, result, sideways

MUTANTS = [
    Mutant(
        "test_images.py::test_images_of_any_size_do_not_see_each_other",
        "images of a batch feel one another",
        "headway.nn.head:Pool.forward",
        sideways(0),
    ),
    Mutant(
        "test_images.py::test_reading_and_identity_edits_change_nothing",
        "reading changes the values",
        "headway.nn.context:Context.emit",
        lambda right: lambda self, *given: right(self, *given) * (1.001 if self.traces() else 1.0),
    ),
    Mutant(
        "test_images.py::test_an_edit_of_any_layer_is_heard",
        "edits are shown but not used",
        "headway.ops.attention_map:attend",
        change(edit=None),
    ),
    Mutant(
        "test_images.py::test_gradients_are_right",
        "tables of biases do not learn",
        "headway.nn.bias:select_rows",
        result(lambda values: values.detach()),
    ),
    Mutant(
        "test_images.py::test_it_is_captured_whole",
        "a partition looks at its data",
        "headway.ops.window:Windows.partition",
        lambda right: lambda self, x: right(self, x if bool((x.sum() > -1e9).item()) else x + 1),
    ),
    Mutant(
        "test_images.py::test_one_window_over_the_grid_is_global_attention",
        "a window that covers the grid is shifted all the same",
        "headway.ops.window:Windows.fit",
        instead(lambda self, *grid: self),
    ),
    Mutant(
        "test_images.py::test_padding_changes_nothing",
        "padding is seen",
        "headway.ops.window:Windows.keep",
        instead(lambda self, *given: None),
    ),
]
