"""How a Whisper hears a sound: its first window of 30 seconds, and what is written for it.

Axes:  T frames   M mels
"""

from __future__ import annotations

from dataclasses import replace

import torch

from headway.data.sounds import read_sound
from headway.generate.feed import context_of
from headway.generate.transcribe import Listening, Transcriber, embedding
from headway.look.axis import frames
from headway.look.media import sound_of
from headway.look.said import Said
from headway.look.scene import Scene
from headway.look.speaking import Writing
from headway.nn.context import EMPTY
from headway.observer import Listener, place_of


def listening(listener: Listener, given: str, said: Said | None) -> Scene:
    """The window with what the model writes for it, in the language it hears, which no edit changes.

    It reads what another `said` in place of its own words, if that is given.
    """
    model, words = listener.model, listener.words
    ear = Transcriber.of(model, words, listener.settings, listener.window)
    rate = ear.sound.rate
    wave = torch.from_numpy(read_sound(place_of(given), rate))
    whole, real = ear.frames(wave, rate)  # T M
    window, timed = ear.part(whole, 0), real > ear.window
    wish = Listening(language=ear.language(ear.hear(whole, 0)))
    prompt = ear.marks.prompt(wish.language, wish.task, timed)

    def written() -> list[int]:
        body = list(ear.written(ear.hear(whole, 0), wish, timed))
        room = context_of(model.decoder)
        # it ends by itself wherever there is room for more
        return body if room is not None and len(prompt) + len(body) >= room else [*body, ear.marks.end]

    def again() -> str:
        return words.decode(ear.marks.text(written())).strip()

    tokens = written()
    text = words.decode(ear.marks.text(tokens)).strip()
    factor, hop = embedding(model).factor, ear.sound.hop
    axis = frames(len(window) // factor, factor * hop / rate)
    writing = Writing(model, window[None], EMPTY, words, axis, axis, said)
    scene = writing.after(prompt, tokens, text, again)
    sound = sound_of(wave[: len(window) * hop], rate, whole[: min(real, len(window))])
    return replace(scene, sound=sound)
