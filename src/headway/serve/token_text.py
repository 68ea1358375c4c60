"""Single tokens as a client reads them: their text, and their bytes, which may be half a character."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from headway.data.decode_stream import BYTES, ByteStream, decoder_kinds, specials
from headway.data.tokenizer import Tokenizer
from headway.serve.engine import TokenEvent

LOWEST = -9999.0  # what OpenAI's API says of a token that cannot be


class TokenText:
    """The tokens of a tokenizer, each as it stands within a text: with the space that decoders strip at the front."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer, self.known = tokenizer, dict[int, bytes]()
        self.special = specials(tokenizer.backend)
        self.byte_level = decoder_kinds(tokenizer.backend) == ["ByteLevel"]

    def text(self, id: int) -> str:
        return self.bytes(id).decode("utf-8", "replace")

    def bytes(self, id: int) -> bytes:
        if id not in self.known:
            self.known[id] = self.spelled(id)
        return self.known[id]

    def spelled(self, id: int) -> bytes:
        token = self.tokenizer.token(id)
        if id in self.special:
            return token.encode()
        if self.byte_level:
            return ByteStream(self.tokenizer.backend).spelled(id)
        if token in BYTES:
            return bytes([BYTES.index(token)])
        return self.decoded([*self.anchor, id])[len(self.decoded(self.anchor)) :].encode()

    def decoded(self, ids: list[int]) -> str:
        return self.tokenizer.backend.decode(ids, skip_special_tokens=False)

    @cached_property
    def anchor(self) -> list[int]:
        """Something that stands before a token."""
        return self.tokenizer.plain("a")[-1:]

    def chat_logprobs(self, events: list[TokenEvent]) -> dict[str, Any]:
        """As chats have them."""
        content = [
            {**self.scored(one.token, one.logprob), "top_logprobs": [self.scored(*pair) for pair in one.top]}
            for one in events
        ]
        return {"content": content, "refusal": None}

    def scored(self, id: int, logprob: float) -> dict[str, Any]:
        return {"token": self.text(id), "logprob": bounded(logprob), "bytes": list(self.bytes(id))}

    def key(self, id: int) -> str:
        """A token's text, or its bytes where they are no text: several such tokens would have the same."""
        found = self.bytes(id)
        try:
            return found.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found)

    def text_logprobs(self, events: list[TokenEvent], start: int) -> dict[str, Any]:
        """As completions have them; `start` is where in the whole text that of the events begins."""
        offsets = list[int]()
        for one in events:
            offsets.append(start)
            start += len(one.text)
        return {
            "tokens": [self.key(one.token) for one in events],
            "token_logprobs": [bounded(one.logprob) for one in events],
            "top_logprobs": [{self.key(id): bounded(logprob) for id, logprob in one.top} for one in events],
            "text_offset": offsets,
        }


def bounded(logprob: float) -> float:
    return max(logprob, LOWEST)
