"""Chat templates give the text and the tokens that transformers gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.data.chat_template import load_chat_template
from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from tests.cli.folders import words

CHAT: list[dict[str, str]] = [
    {"role": "system", "content": "  be brief\n"},
    {"role": "user", "content": "the cat <b>&\"'\u00fc"},
    {"role": "assistant", "content": "sat"},
    {"role": "user", "content": "on the mat"},
]
TEMPLATES = {
    "markers": "{% for m in messages %}{{ bos_token + m.role }}\n  {{ m['content'] | trim }}{{ eos_token }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}",
    "blocks": """{%- set ns = namespace(last='') -%}
    {% for m in messages %}
        {% if m.role == 'system' %}{% continue %}{% endif %}
        {%- if loop.index > 9 %}{% break %}{% endif %}
[{{ m.role | upper }}] {% generation %}{{ m['content'] }}{% endgeneration %}
        {%- set ns.last = m.role %}
    {% endfor %}
({{ ns.last }}){{ tools is none }}{{ documents is none }}""",
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ strftime_now('%Y') | length }}",
    "macro": "{% macro say(m) %}{{ m.role ~ ': ' ~ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{{ '\\n' if not loop.last }}{% endfor %}",
}


def folder_with(place: Path, template: str) -> Path:
    words("characters", before=True, after=True).save(place)
    settings = json.loads((place / "tokenizer_config.json").read_text())
    settings |= {"chat_template": template, "split_special_tokens": False}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_as_in_transformers(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = folder_with(tmp_path, TEMPLATES[name])
    theirs: Any = AutoTokenizer.from_pretrained(str(folder))
    template = load_chat_template(folder)
    assert template is not None
    text = template.render(CHAT)
    assert text == theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    expected = theirs.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert load_tokenizer(folder).marked(text) == list(expected)


def test_where_a_template_stands(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "one")
    assert rendered(folder) == "one"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    several = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": several}))
    assert rendered(folder) == "three"
    (folder / "chat_template.jinja").write_text("four")
    assert rendered(folder) == "four"
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    assert load_chat_template(folder) is None


def test_a_template_is_saved_with_its_tokenizer(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "read", TEMPLATES["markers"])
    load_tokenizer(folder).save(tmp_path / "saved")
    assert rendered(tmp_path / "saved") == rendered(folder)
    load_tokenizer(tmp_path / "saved").save(tmp_path / "again")
    assert rendered(tmp_path / "again") == rendered(folder)


def rendered(folder: Path) -> str:
    template = load_chat_template(folder)
    assert template is not None
    return template.render(CHAT)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception('no') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include 'tokenizer_config.json' %}",
        "{% for x in range(10**9) %}{% endfor %}",
        "{{ messages[99].content.x }}",
    ],
)
def test_a_template_stays_in_its_sandbox(template: str, tmp_path: Path) -> None:
    found = load_chat_template(folder_with(tmp_path, template))
    assert found is not None
    with pytest.raises(UserError, match="refuses these messages"):
        found.render(CHAT)


def test_a_malformed_template_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="malformed"):
        load_chat_template(folder_with(tmp_path, "{% for %}"))
