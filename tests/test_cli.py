"""The command line as a person meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headway
from headway.cli import main as cli
from headway.errors import UserError
from headway.learn.explain import TOPICS

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "headway"]


def headway_says(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    return code, *capsys.readouterr()


def test_alone_it_names_the_starting_points(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = headway_says(capsys)
    assert (code, err) == (0, "")
    starts = ("headway train dates", "headway train FILE", "headway run MODEL", "headway explain attention")
    assert all(start in out for start in (*starts, "headway --help"))


@pytest.mark.slow
def test_help_names_the_commands_and_every_topic(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = headway_says(capsys, "--help")
    assert code == 0
    assert out.startswith("Usage: headway COMMAND")
    assert "demo" in out
    assert "explain" in out
    _, out, _ = headway_says(capsys, "explain", "--help")
    assert all(topic in out for topic in TOPICS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--version", "version"):
        assert headway_says(capsys, word) == (0, f"{headway.__version__}\n", "")


@pytest.mark.slow
def test_help_may_be_asked_for_in_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert headway_says(capsys, "help") == headway_says(capsys, "--help")
    assert headway_says(capsys, "help", "explain") == headway_says(capsys, "explain", "--help")


COMMANDS = "train, check, eval, init, doctor, demo, list, cost and 14 more"
LONG = f"  allowed: {COMMANDS}"
MISTAKES = {
    "exlpain": f"headway has no command 'exlpain'; did you mean 'explain'?\n  tip: headway explain\n{LONG}",
    "exlpain attention --json": "headway has no command 'exlpain'; did you mean 'explain'?\n"
    f"  tip: headway explain attention --json\n{LONG}",
    "zzz": f"headway has no command 'zzz'; see headway --help; allowed: {COMMANDS}",
    "predict model text": "headway has no command 'predict'; did you mean 'run'?\n"
    f"  tip: headway run model text\n{LONG}",
    "--hlep": "headway has no option '--hlep'; allowed: --help, --version; did you mean '--help'?\n"
    "  tip: headway --help",
    "explain attention --jsn": "headway explain has no option '--jsn'; did you mean '--json'?\n"
    "  tip: headway explain attention --json\n"
    "  allowed: --x, --wq, --wk, --wv, --heads, --scaled, --unscaled, --mask and 15 more",
    "explain attnetion": "no topic 'attnetion' to explain; headway explain lists them; did you mean 'attention'?\n"
    f"  tip: headway explain attention\n  allowed: {', '.join(TOPICS)}",
    "explain attention more": "attention has no use for 'more'; this topic takes no preset",
    "explain attention --json=maybe": 'Invalid value for --json: unable to convert "maybe" into bool; '
    "see headway explain --help",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert headway_says(capsys, *line.split()) == (2, "", f"error: {MISTAKES[line]}\n")


def raising(error: BaseException):
    def explain(*_: object, **__: object) -> str:
        raise error

    return explain


def test_a_user_error_in_a_command_is_one_line(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headway.learn.explain.explain", raising(UserError("no such file 'a.txt'", do="check the name"))
    )
    said = headway_says(capsys, "explain", "attention")
    assert said == (2, "", "error: no such file 'a.txt'; check the name\n")


def test_ctrl_c_is_quiet(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.learn.explain.explain", raising(KeyboardInterrupt()))
    assert headway_says(capsys, "explain", "attention") == (130, "", "")


def test_a_defect_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.learn.explain.explain", raising(KeyError("ours")))
    with pytest.raises(KeyError, match="ours"):
        cli.main(["explain", "attention"])


def test_explain_attention_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = headway_says(capsys, "explain", "attention")
    assert (code, err) == (0, "")
    assert "softmax(Q Kᵀ / √d) V" in out
    for line in (
        "flying     0   1   1   1   1   0",  # X
        "flying     0.707107  -0.707107",  # scores
        "flying     0.804430   0.195570",  # weights
        "arrows     0.892958   0.107042",
        "flying     0.608859   0.195570",  # output
        "arrows     0.785916   0.107042",
    ):
        assert line in out
    assert max(map(len, out.splitlines())) <= 80


def test_explain_as_json_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = headway_says(capsys, "explain", "attention", "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["steps"][0]["labels"]["X"]["rows"] == ["flying", "arrows"]
    assert told["values"]["weights"][0] == pytest.approx([0.804430, 0.195570], abs=5e-7)
    assert told["values"]["output"][0] == pytest.approx([0.608859, 0.195570], abs=5e-7)


def test_source_leads_to_the_formula(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, out, _ = headway_says(capsys, "explain", "attention", "--source")
    file, line = out.split()[0].split(":")
    assert (code, file) == (0, "src/headway/ops/attend.py")
    assert (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1].startswith("def attend(")
    _, out, _ = headway_says(capsys, "explain", "attention", "--source", "--json")
    assert json.loads(out)[0] == {"name": "attend", "place": f"{file}:{line}"}


def test_source_from_elsewhere_is_a_full_path(capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = headway_says(capsys, "explain", "attention", "--source")
    assert Path(out.split()[0].rpartition(":")[0]).is_absolute()


def apart(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, encoding="utf-8", check=False, env=os.environ | env
    )


@pytest.mark.slow
def test_python_m_headway_is_headway() -> None:
    done = apart("exlpain")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {MISTAKES['exlpain']}\n"
    assert apart("--help").stdout.startswith("Usage: headway COMMAND")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {"GOMP_SPINCOUNT": "1000"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "5"}, {"GOMP_SPINCOUNT": "5"}),
        ({"KMP_BLOCKTIME": "5"}, {"KMP_BLOCKTIME": "5"}),
    ],
)
@pytest.mark.parametrize("torch", [False, True])
def test_threads_of_a_command_spin_briefly_while_they_wait(
    given: dict[str, str], kept: dict[str, str], torch: bool
) -> None:
    """As the user says, or briefly; set before torch is loaded, never by an import, and not when it is too late."""
    code = (
        "import os, sys, headway, headway.cli.main\n"
        f"sys.modules.update({{'torch': None}} if {torch} else {{}})\n"
        "said = lambda: {name: value for name, value in os.environ.items() if name[:4] in ('OMP_', 'GOMP', 'KMP_')}\n"
        "before = said()\n"
        "assert headway.cli.main.main(['--version']) == 0\n"
        "print(before, said(), sep='\\n')\n"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**plain, **given}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == [str(given), str(given if torch else kept)]


@pytest.mark.slow
def test_the_installed_command_is_the_same() -> None:
    script = Path(sys.executable).with_name("headway")
    done = subprocess.run([script, "exlpain"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"error: {MISTAKES['exlpain']}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--help"], ["train", "--help"], ["explain", "--help"], ["explain", "attention"], ["exlpain"]]
)
def test_piped_output_is_plain_and_narrow(words: list[str]) -> None:
    done = apart(*words, COLUMNS="80")
    assert "\x1b" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines()), default=0) <= 80


@pytest.mark.slow
def test_a_narrow_encoding_is_forgiven() -> None:
    done = apart("explain", "attention", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.804430" in done.stdout


@pytest.mark.slow
def test_no_color_is_respected_on_a_terminal() -> None:
    assert "\x1b[3" not in on_a_terminal("--help", NO_COLOR="1", TERM="xterm-256color")


def on_a_terminal(*words: str, **env: str) -> str:
    main, child = os.openpty()
    with subprocess.Popen([*COMMAND, *words], stdout=child, stderr=child, env=os.environ | env) as process:
        os.close(child)
        printed = b""
        try:
            while chunk := os.read(main, 65536):
                printed += chunk
        except OSError:  # Linux tells the end of a terminal this way
            pass
        process.wait()
    os.close(main)
    return printed.decode()


@pytest.mark.slow
def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(COMMAND, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "error: No space left on device; check space, rights and path\n"
    assert (done.returncode, done.stderr) == (1, told)


SPELLED = {
    "data.columns and data.label_from": ("train", "--columns and --data.label-from"),
    "data.columns, data.label_from.": ("eval", "--columns, --label-from."),
    "train.lr is given twice": ("train", "--train.lr is given twice"),
    "the run has train.lr = 0.1": ("train", "the run has train.lr = 0.1"),
    "beam= searches": ("run", "--beam searches"),
    "max_new_tokens= is 0": ("generate", "--max-new-tokens is 0"),
    "heads=12 in a config": ("run", "heads=12 in a config"),
    "heads=12 do not divide dim=500": ("run --heads 12", "--heads 12 do not divide dim=500"),
    "row=-1; allowed: 0 to 7": ("inspect rollout --row=-1", "--row -1; allowed: 0 to 7"),
    "give their number, as in heads=8": ("run", "give their number, as in --heads 8"),
    "allow it with unsafe=True": ("look", "allow it with --unsafe"),
    "use to=headway": ("convert", "use --to headway"),
    "no token 'count=3'": ("inspect neighbours --count 3", "no token 'count=3'"),
    "beam= searches and embeds": ("look", "beam= searches and embeds"),
    "data.columns.tsv, /data.columns and data.nothing": ("train", "data.columns.tsv, /data.columns and data.nothing"),
    "model.safetensors": ("train", "model.safetensors"),
    "data.path": ("train", "DATA"),
}


@pytest.mark.parametrize("message", SPELLED)
def test_the_command_spells_what_the_library_names(message: str) -> None:
    command, told = SPELLED[message]
    assert cli.spelled(message, command.split()) == told


def test_an_option_keeps_its_name_of_earlier_versions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("a cat\teine Katze\na small dog\tein kleiner Hund\n")
    code, out, _ = headway_says(capsys, "check", str(file), "--max-length", "10")
    assert (code, "1 good" in out) == (2, True)
    assert headway_says(capsys, "check", str(file), "--longest", "10")[:2] == (code, out)
    _, out, _ = headway_says(capsys, "check", "--help")
    assert ("--max-length" in out, "--longest" in out) == (True, False)
