"""Topics of `headway explain`: every rendering of each, the quiz, inputs of one's own, and the facts they show."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from headway.cli import main as cli
from headway.errors import UserError
from headway.learn.explain import TOPICS, explain, sources
from headway.learn.explanation import Explanation, Matrix, Quantity, Question, ValueTable
from headway.learn.quiz import is_right, quiz
from headway.learn.rendering import to_html, to_latex, to_text

PRESETS = {"shapes": ("transformer-nano",), "block": ("transformer-nano",), "diff": ("bert-tiny", "gpt-nano")}


@cache
def found(topic: str) -> Explanation:
    return explain(topic, *PRESETS.get(topic, ()))


def matrix(explanation: Explanation, name: str) -> list[list[float]]:
    value = explanation.values()[name]
    assert isinstance(value, Matrix)
    return [list(row) for row in value.values]


def table(explanation: Explanation, name: str) -> list[dict[str, object]]:
    value = explanation.values()[name]
    assert isinstance(value, ValueTable)
    return [dict(row) for row in value.data()]


def quantity(explanation: Explanation, name: str) -> float:
    value = explanation.values()[name]
    assert isinstance(value, Quantity)
    return float(value.value)


# ---- every topic, every rendering


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_text_fits_a_terminal(topic: str) -> None:
    text = to_text(found(topic))
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert text.startswith(TOPICS[topic].summary[:40])
    for number, step in enumerate(found(topic).steps, 1):
        assert f"\n{number}. {step.title[:20]}" in text


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_json_has_every_value_once(topic: str) -> None:
    told = json.loads(json.dumps(found(topic).to_dict(), allow_nan=False))
    names = [name for step in told["steps"] for name in step["values"]]
    assert len(names) == len(set(names))
    assert set(names) == set(told["values"])
    assert told["topic"] == topic


class Tags(HTMLParser):
    """What a page has open, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"src", "href", "xlink:href"}
        self.loads += [value or "" for name, value in attrs if name in names and not (value or "").startswith("#")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_whole_and_loads_nothing(topic: str) -> None:
    page, tags = to_html(found(topic)), Tags()
    tags.feed(page)
    assert tags.open == []
    assert [one for one in tags.loads if not one.startswith("data:image/png;base64,")] == []
    assert "<script" not in page
    assert page.count("<section>") == len(found(topic).steps)
    assert page.count("<svg") == sum(step.figure is not None for step in found(topic).steps)


def test_formulas_of_a_page_have_subscripts() -> None:
    page = to_html(found("gru"))
    assert "h<sub>t</sub> = u<sub>t</sub> ⊙ h<sub>t−1</sub> + (1 − u<sub>t</sub>) ⊙ h̃<sub>t</sub>" in page
    assert "Π<sub>j&gt;i</sub> u<sub>j</sub>" in page


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_latex_is_ascii_and_closed(topic: str) -> None:
    document = to_latex(found(topic))
    assert sorted({sign for sign in document if not sign.isascii()}) == []
    assert re.findall(r"\\begin\{(\w+)\}", document).count("document") == 1
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", document):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    plain = document.replace("\\{", "").replace("\\}", "")
    assert plain.count("{") == plain.count("}")
    assert document.count("\\[") == document.count("\\]")


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_latex_has_no_special_character_out_of_place(topic: str) -> None:
    document = to_latex(found(topic))
    bare = re.sub(r"\\\[.*?\\\]", "", document, flags=re.DOTALL)  # formulas
    bare = re.sub(r"^%.*$", "", bare.replace("\\\\", ""), flags=re.MULTILINE)
    bare = re.sub(r"\$[^$\n]+\$", "", re.sub(r"\\[^A-Za-z]", "", bare))  # escaped characters, then formulas in a line

    def cells(table: re.Match[str]) -> str:
        """What stands in a table, whose rows have a cell for each column."""
        assert {row.count("&") for row in table[2].strip().splitlines()} == {len(table[1]) - 1}
        return table[2].replace("&", " ")

    bare = re.sub(r"\\begin\{longtable\}\{(l+r*)\}\n(.*?)\\end\{longtable\}", cells, bare, flags=re.DOTALL)
    assert re.findall(r"[#$%&^_]", bare) == []


@pytest.mark.parametrize("topic", TOPICS)
def test_sources_are_definitions(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    for one in sources(topic):
        file, _, line = one.place.rpartition(":")
        text = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1].strip()
        assert re.match(rf"(@dataclass|def {one.name.rpartition('.')[2]}\b|class {one.name}\b)", text), one


def answers(explanation: Explanation) -> list[str]:
    questions = [step.question for step in explanation.steps if step.question is not None]
    return [question.answer if isinstance(question.answer, str) else repr(question.answer) for question in questions]


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_a_quiz_accepts_right_answers_and_rejects_wrong_ones(topic: str) -> None:
    said: list[str] = []
    score = quiz(found(topic), answers(found(topic)), said.append)
    assert score.right == score.asked == len(answers(found(topic)))
    assert topic == "diff" or score.asked > 0
    assert said[-1] == f"\nScore: {score.asked} of {score.asked}"
    assert quiz(found(topic), ["12345.678"] * 20, said.append).right == 0
    assert quiz(found(topic), [], said.append).right == 0


def test_answers_are_read_as_people_write_them() -> None:
    number, choice = Question("?", 0.5), Question("?", "no", ("yes", "no"))
    assert all(is_right(number, text) for text in ("0.5", " 0,5 ", "1/2", "5e-1", "0.504"))
    assert not any(is_right(number, text) for text in ("0.51", "half", "", "nan", "inf", "1/0", "-0.5"))
    assert all(is_right(choice, text) for text in ("no", "NO ", "2", "2."))
    assert not any(is_right(choice, text) for text in ("yes", "1", "3", ""))
    assert is_right(Question("?", 9_834_496.0), "9 834 496")


def test_a_quiz_reads_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter([f"{answer}\n" for answer in answers(found("heads"))])
    monkeypatch.setattr("sys.stdin", lines)
    assert cli.main(["explain", "heads", "--quiz"]) == 0
    out = capsys.readouterr().out
    assert out.index("Question 1:") < out.index("1. Narrow heads")
    assert out.endswith("Score: 3 of 3\n")


# ---- the command


def test_alone_it_lists_every_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^{topic}\s+{re.escape(TOPICS[topic].summary[:20])}", out, re.M) for topic in TOPICS)
    assert max(map(len, out.splitlines())) <= 80
    assert cli.main(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {name: topic.summary for name, topic in TOPICS.items()}


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    assert cli.main(["explain", "heads", "--html", str(file)]) == 0
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capsys.readouterr().out == f"wrote {file}\n"


REFUSED = {
    'attention --x "0 1 1; 1 0"': "--x has rows of 3, 2 numbers; allowed: rows of one length",
    'attention --x "0 a; 1 0"': "--x has the entry 'a'; allowed: numbers separated by spaces",
    'attention --x "1e999 0"': "--x has the entry '1e999'",
    'attention --x ""': "--x has rows of 0 numbers",
    'attention --x "0 1 1; 1 0 1" --wq "1 0; 0 1"': "--wq is 2×2 and --x is 2×3; allowed: a matrix of 3 rows",
    'attention --x "0 1; 1 0" --wq "1; 1" --wk "1 0; 0 1"': "--wq is 2×1 and --wk is 2×2; allowed: as many columns",
    "attention --heads 3": "--heads 3 for 2 columns of --wq; allowed: heads of 1, 2",
    "attention --heads 0": "--heads 0; allowed: a whole number of 1 or more",
    "attention --scaled --unscaled": "--scaled and --unscaled exclude each other",
    "attention --mask half": "--mask half; allowed: causal, or a matrix of 0 and 1",
    'attention --mask "1 0"': "--mask is 1×2; allowed: 2×2",
    'attention --mask "1 0; 2 1"': "allowed: causal, or a matrix of 0 and 1",
    "attention --n 5": "attention takes no --n; allowed: --x, --wq, --wk, --wv, --heads, --scaled, --unscaled, --mask",
    "block gpt2 --n 5": "block takes no --n; leave --n out: this topic takes no inputs",
    "memory --bits 12": "--bits 12; allowed: 8, 16, 32 or 64",
    "memory --n 9 --window 4": "--window 4 for 9 tokens",
    "positions --dim 6": "--dim 6; allowed: a multiple of 4",
    "moe --experts 2 --active 3": "--active 3 of --experts 2; allowed: active from 1 to 2",
    'norms --x "3"': "--x has one column",
    "gru --heads 3": "--heads 3 for vectors of 4 numbers",
    'equivariance --x "1 0; 0 1" --n 3': "leave out --n and --dim",
    "shapes": "shapes needs 1 preset; as in headway explain shapes gpt2",
    "diff gpt2": "diff needs 2 presets",
    "shapes gpt2 bert-base": "shapes has no use for 'bert-base'; give 1 preset",
    "shapes gtp2": "no preset 'gtp2'",
    "shapes vit-nano --n 5": "--n 5 for vit-nano, which reads images; leave --n out",
    "attention --json --latex": "--json and --latex exclude each other",
    "attention --html nowhere/page.html": "the folder nowhere does not exist",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    assert cli.main(["explain", *shlex.split(line)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert REFUSED[line] in err
    assert "Traceback" not in err


def test_an_option_that_no_topic_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"no option 'head'.*did you mean 'heads'"):
        explain("attention", head=2)


# ---- facts


def test_attention_is_the_exercise() -> None:
    told = found("attention")
    assert matrix(told, "weights")[0] == pytest.approx([0.804430, 0.195570], abs=5e-7)
    assert matrix(told, "output")[0] == pytest.approx([0.608859, 0.195570], abs=5e-7)
    assert matrix(told, "output of self-attention") == matrix(told, "output")
    assert matrix(told, "masked weights")[0] == [1, 0]
    titles = [step.title.partition(":")[0] for step in told.steps[5:]]
    assert titles == [
        *("One query", "Dot product", "Scaled dot product", "Many queries", "Keys and values", "Cross-attention"),
        *("Self-attention", "Masked self-attention", "Multi-head attention"),
    ]
    assert all(step.sentences[0].startswith("Changed:") for step in told.steps[6:])


def test_attention_of_own_matrices() -> None:
    x, w = torch.tensor([[0.0, 1, 1], [1, 0, 1]]), torch.tensor([[1.0, 0], [0, 1], [1, 1]])
    told = explain("attention", x="0 1 1; 1 0 1", wq="1 0; 0 1; 1 1", wk="1 0; 0 1; 1 1", unscaled=True)
    expected = (x @ w @ (x @ w).T).softmax(-1)
    torch.testing.assert_close(torch.tensor(matrix(told, "weights")), expected)
    torch.testing.assert_close(torch.tensor(matrix(told, "output")), expected @ x)
    assert matrix(explain("attention", mask="causal"), "weights")[0] == [1, 0]
    assert matrix(explain("attention", mask="1 0; 1 1"), "weights") == matrix(
        explain("attention", mask="causal"), "weights"
    )
    assert explain("attention", x=[[0, 1, 1], [1, 0, 1]]).steps[0].title == "X: each row is a vector."


def test_scaling_saturates_and_starves() -> None:
    largest, gradient = table(found("scaling"), "largest weight"), table(found("scaling"), "norm of the gradient")
    unscaled = [float(str(row["unscaled"])) for row in largest]
    assert unscaled == sorted(unscaled)
    assert unscaled[-1] > 0.95
    assert float(str(gradient[-1]["unscaled"])) < 0.1 * float(str(gradient[0]["unscaled"]))
    assert float(str(gradient[-1]["scaled"])) > 0.9 * float(str(gradient[0]["scaled"]))
    deviation = table(found("scaling"), "standard deviation of scores")
    for row in deviation:
        assert float(str(row["unscaled"])) == pytest.approx(int(str(row["D"])) ** 0.5, rel=0.15)


def test_positions_are_distinct_and_relative() -> None:
    told = found("positions")
    assert quantity(told, "smallest distance of two positions") > 0.5
    assert quantity(told, "largest error of R P(p) over all p") < 1e-5
    assert quantity(told, "largest difference of the sum and the whole") < 1e-12
    assert "up to 43 for C = 512" in told.steps[2].sentences[0]
    scores = torch.tensor(matrix(told, "score of a query at m and a key at n"))
    for offset in range(-3, 4):
        torch.testing.assert_close(scores.diagonal(offset), scores.diagonal(offset)[:1].expand(5 - abs(offset)))


def test_equivariance_is_lost_with_positions() -> None:
    rows = {
        row["layer"]: row["largest difference"] for row in table(found("equivariance"), "largest difference by variant")
    }
    assert float(str(rows["self-attention"])) < 1e-12
    assert float(str(rows["with positions"])) > 1e-3
    assert float(str(rows["with a causal mask"])) > 1e-3


def test_heads_count_and_one_blurs() -> None:
    told = explain("heads", dim=1024, heads=4)
    narrow, full = table(told, "weights of narrow heads"), table(told, "weights of full-width heads")
    assert narrow[-1] == {"heads": 4, "head width": 256, "W_Q": 1024**2, "W_O": 1024**2, "all weights": 4 * 1024**2}
    assert full[-1]["all weights"] == 16 * 1024**2
    one, two = matrix(told, "output of one head"), matrix(told, "output of two heads")
    assert one[0] == pytest.approx(one[1], abs=1e-9)
    assert abs(two[0][0] - two[1][0]) > 0.9


def test_norms_differ_by_the_root_of_c() -> None:
    told = found("norms")
    biased, unbiased = (torch.tensor(matrix(told, name)) for name in ("LayerNorm(x)", "unbiased LayerNorm(x)"))
    torch.testing.assert_close(unbiased * (4 / 3) ** 0.5, biased, atol=1e-5, rtol=0)
    assert quantity(told, "largest difference of the logits") > 0.005
    assert torch.tensor(matrix(told, "RMSNorm(x)")).square().mean().item() == pytest.approx(1, abs=1e-5)


def test_both_feed_forward_layers_have_8_c_squared() -> None:
    rows = table(found("ffn"), "weights of both")
    assert rows
    for row in rows:
        assert row["MLP"] == row["8C²"]
        if int(str(row["C"])) % 3 == 0:
            assert row["SwiGLU"] == row["8C²"]


@pytest.mark.slow
def test_experts_multiply_weights_and_not_compute() -> None:
    told = found("moe")
    for row in table(told, "experts, weights and compute"):
        assert row["× one expert"] == row["E"]
        assert row["× one expert's"] == 2
    assert quantity(told, "largest difference from Σ g_i expert_i(x)") < 1e-12
    assert [sum(row) for row in matrix(told, "gates")] == pytest.approx([1] * 6)
    assert quantity(told, "balance loss of a router that prefers no expert") == pytest.approx(2)
    assert quantity(told, "balance loss of tokens that all pick the same 2") == pytest.approx(4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_unrolled_gru_is_the_recurrence(seed: int) -> None:
    right, wrong = table(explain("gru", seed=seed, n=7), "difference from the recurrence")
    assert float(str(right["largest difference"])) < 1e-12
    assert float(str(wrong["largest difference"])) > 0.01


@pytest.mark.slow
def test_memory_prints_the_numbers_of_the_slides() -> None:
    text = to_text(found("memory"))
    for fact in (
        *("1 280 000 000 000", "1192.09 GiB", "768.00 GiB", "150.06 KiB", "256.00 KiB", "112.55 MiB", "192.00 MiB"),
        *("9 834 496", "153 664", "1.28"),
    ):
        assert fact in text
    counted, models = table(found("memory"), "known cases"), table(found("memory"), "attention of models")
    assert [row["bytes"] for row in models[:2]] == [row["bytes"] for row in counted[:2]]
    assert models[2]["bytes"] == counted[3]["bytes"]
    assert models[3]["bytes"] == 2 * 3 * 153_664 * 4


def test_memory_of_own_sizes() -> None:
    rows = table(explain("memory", n=100_000, heads=64, bits=16), "in all units")
    assert {row["binary"]: row["× 1024 each"] for row in rows}["GiB"] == pytest.approx(1192.0929, abs=1e-4)
    assert {row["decimal"]: row["× 1000 each"] for row in rows}["TB"] == 1.28
