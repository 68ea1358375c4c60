"""Defects against the laws of attention on grids."""

from __future__ import annotations

import torch

from headway.ops.window import Halo
from tests.laws.defects.planting import Mutant, change, instead, result, sideways

MAP = "headway.ops.attention_map"
ATTENTION = "headway.nn.attention"

MUTANTS = [
    Mutant(
        "test_grids.py::test_windowed_is_attention_over_all_cells_within_the_same_window",
        "offsets are key minus query",
        "headway.nn.bias:relative_index_2d",
        lambda right: lambda q, k, window: right(k, q, window).mT,
    ),
    Mutant(
        "test_grids.py::test_a_change_reaches_just_the_cells_of_its_region",
        "a shift leaks across the seam",
        "headway.ops.window:Windows.keep",
        instead(lambda self, *given: None),
    ),
    Mutant(
        "test_grids.py::test_a_window_that_covers_the_grid_is_plain_attention",
        "a window that covers the grid is shifted all the same",
        "headway.ops.window:Windows.fit",
        instead(lambda self, *grid: self),
    ),
    Mutant(
        "test_grids.py::test_a_shrunk_window_keeps_the_bias_of_its_offsets",
        "cells are counted in the shrunk window",
        "headway.nn.window_attention:Windowed.cells",
        instead(lambda self, fitted, device: torch.arange(fitted.rows * fitted.cols)[None]),
    ),
    Mutant(
        "test_grids.py::test_local_is_attention_over_all_cells_in_the_neighbourhood",
        "a tile's cells see all of its halo",
        "headway.ops.window:Halo.keep",
        lambda right: lambda self, *grid: right(self, *grid).any(1, keepdim=True),
    ),
    Mutant(
        "test_grids.py::test_local_has_the_gradients_of_its_definition",
        "keys and values pass on half of their gradient",
        "headway.ops.window:Halo.keys",
        result(lambda x: (x + x.detach()) / 2),
    ),
    Mutant(
        "test_grids.py::test_memory_of_local_attention_does_not_grow_with_the_neighbourhood",
        "every cell has a tile of its own",
        "headway.nn.window_attention:cheapest_tile",
        instead(lambda size, grid, stride=1, copied=64: Halo(size, 1, stride)),
    ),
    Mutant(
        "test_grids.py::test_pooled_attention_is_the_published_one",
        "offsets of pooled cells are taken backwards",
        "headway.nn.bias:decomposed_index",
        result(lambda index: index.flip(0)),
    ),
    Mutant(
        "test_grids.py::test_without_a_pool_it_is_plain_attention",
        "queries are added unasked",
        "headway.nn.window_attention:without_queries",
        instead(lambda y, q: y + q),
    ),
    Mutant(
        "test_grids.py::test_gradients_are_right",
        "tables of biases do not learn",
        "headway.nn.bias:select_rows",
        result(lambda values: values.detach()),
    ),
    Mutant(
        "test_grids.py::test_it_is_captured_whole",
        "a partition looks at its data",
        "headway.ops.window:Windows.partition",
        lambda right: lambda self, x: right(self, x if bool((x.sum() > -1e9).item()) else x + 1),
    ),
    Mutant(
        "test_grids.py::test_reading_and_identity_edits_change_nothing",
        "reading changes the values",
        "headway.nn.context:Context.emit",
        lambda right: lambda self, *given: right(self, *given) * (1.001 if self.traces() else 1.0),
    ),
    Mutant(
        "test_grids.py::test_what_is_read_is_what_was_used",
        "a map shows other weights than it multiplies with",
        f"{MAP}:AttentionMap.band",
        result(lambda band: band._replace(weights=band.weights * 0.99)),
    ),
    Mutant(
        "test_grids.py::test_an_edit_is_heard",
        "edits are shown but not used",
        f"{MAP}:attend",
        change(edit=None),
    ),
    Mutant(
        "test_grids.py::test_images_do_not_see_each_other",
        "images of a batch feel one another",
        f"{ATTENTION}:Attention.weigh",
        sideways(0),
    ),
]
