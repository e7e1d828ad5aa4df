"""Answers in OpenAI's shapes, whole and in chunks: chat and text completions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from minfer.serve.wire.transcript import Delta, Scored, Transcript

if TYPE_CHECKING:
    from minfer.engine.tokenizer import Tokenizer

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heading:
    """What is the same in every chunk of an answer. `id` is the suffix of OpenAI's."""

    id: str
    model: str
    fingerprint: str
    seed: int
    warnings: tuple[str, ...] = ()
    created: int = field(default_factory=lambda: int(time.time()))


class Reply(Protocol):
    """The shape of one kind of answer."""

    def opening(self, index: int) -> Json | None:
        """The chunk sent before any token, if the kind has one."""

    def chunk(self, index: int, delta: Delta) -> Json:
        """A chunk with what was added to choice `index`."""

    def usage_chunk(self, usage: Json) -> Json:
        """The chunk without choices that carries the token counts."""

    def whole(self, transcripts: Sequence[Transcript], usage: Json) -> Json:
        """The answer in one piece."""


class ChatReply:
    """chat.completion and chat.completion.chunk."""

    def __init__(self, heading: Heading, tokenizer: Tokenizer, *, has_logprobs: bool) -> None:
        self._heading = heading
        self._tokenizer = tokenizer
        self._has_logprobs = has_logprobs

    def opening(self, index: int) -> Json:
        """The chunk that says who speaks."""
        return self._chunk(index, {"role": "assistant", "content": ""}, None, None)

    def chunk(self, index: int, delta: Delta) -> Json:
        """Text with its tokens, or the end."""
        content = {"content": delta.text} if delta.text or delta.tokens else {}
        logprobs = self._logprobs(delta.tokens) if self._has_logprobs and content else None
        return self._chunk(index, content, logprobs, delta.finish)

    def usage_chunk(self, usage: Json) -> Json:
        """Token counts."""
        return {**_head(self._heading, "chat.completion.chunk", "chatcmpl"), "choices": [], "usage": usage}

    def whole(self, transcripts: Sequence[Transcript], usage: Json) -> Json:
        """Every choice with its message."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(one.text), "refusal": None},
                "logprobs": self._logprobs(one.tokens) if self._has_logprobs else None,
                "finish_reason": _finish(one),
            }
            for index, one in enumerate(transcripts)
        ]
        return {
            **_head(self._heading, "chat.completion", "chatcmpl"),
            "choices": choices,
            "usage": usage,
        }

    def _chunk(self, index: int, delta: Json, logprobs: Json | None, finish: str | None) -> Json:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**_head(self._heading, "chat.completion.chunk", "chatcmpl"), "choices": [choice]}

    def _logprobs(self, tokens: Sequence[Scored]) -> Json:
        return {
            "content": [
                {
                    **self._token(one.id, one.logprob),
                    "top_logprobs": [self._token(id_, logprob) for id_, logprob in one.alternatives],
                }
                for one in tokens
            ],
            "refusal": None,
        }

    def _token(self, id_: int, logprob: float | None) -> Json:
        data = self._tokenizer.piece(id_, special=True)
        return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}


class CompletionReply:
    """text_completion, in chunks of the same shape. echoes: the text before each choice."""

    def __init__(
        self, heading: Heading, tokenizer: Tokenizer, echoes: Sequence[str], *, has_logprobs: bool
    ) -> None:
        self._heading = heading
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._has_logprobs = has_logprobs
        self._offsets = [len(echo) for echo in echoes]

    def opening(self, index: int) -> Json | None:
        """The prompt, when it is to be echoed."""
        if not self._echoes[index] or self._has_logprobs:
            return None  # with logprobs it goes along with its tokens, once they are scored
        return self._chunk(index, self._echoes[index], None, None)

    def chunk(self, index: int, delta: Delta) -> Json:
        """Text with its tokens, or the end."""
        logprobs = None
        if self._has_logprobs and delta.tokens:
            logprobs = self._logprobs(delta.tokens, self._offsets[index])
        self._offsets[index] += len(delta.text)
        return self._chunk(index, delta.text, logprobs, delta.finish)

    def echo_chunk(self, index: int, scored: Sequence[Scored]) -> Json:
        """The echoed prompt with its tokens."""
        return self._chunk(index, self._echoes[index], self._logprobs(scored, 0), None)

    def usage_chunk(self, usage: Json) -> Json:
        """Token counts."""
        return {**_head(self._heading, "text_completion", "cmpl"), "choices": [], "usage": usage}

    def whole(self, transcripts: Sequence[Transcript], usage: Json) -> Json:
        """Every choice with its text."""
        choices = []
        for index, one in enumerate(transcripts):
            logprobs = None
            if self._has_logprobs:
                echoed = one.prompt_tokens if self._echoes[index] else []
                logprobs = self._logprobs([*echoed, *one.tokens], 0 if echoed else len(self._echoes[index]))
            text = self._echoes[index] + "".join(one.text)
            choices.append(
                {"index": index, "text": text, "logprobs": logprobs, "finish_reason": _finish(one)}
            )
        return {**_head(self._heading, "text_completion", "cmpl"), "choices": choices, "usage": usage}

    def _chunk(self, index: int, text: str, logprobs: Json | None, finish: str | None) -> Json:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return {**_head(self._heading, "text_completion", "cmpl"), "choices": [choice]}

    def _logprobs(self, tokens: Sequence[Scored], offset: int) -> Json:
        """The four parallel lists of the older API; `offset` is where the first token's text begins."""
        texts = [self._text(one.id) for one in tokens]
        offsets = []
        for one in tokens:
            offsets.append(offset)
            offset += len(self._tokenizer.piece(one.id, special=True).decode("utf-8", "replace"))
        return {
            "tokens": texts,
            "token_logprobs": [one.logprob for one in tokens],
            "top_logprobs": [
                None if one.logprob is None else {self._text(id_): value for id_, value in one.alternatives}
                for one in tokens
            ],
            "text_offset": offsets,
        }

    def _text(self, id_: int) -> str:
        """A token's text; one that is no whole characters is spelt out, as OpenAI does."""
        data = self._tokenizer.piece(id_, special=True)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def usage_of(transcripts: Sequence[Transcript], prompts: Sequence[int]) -> Json:
    """Token counts over all choices; `prompts` are the lengths of the distinct prompts."""
    n_prompt = sum(prompts)
    n_generated = sum(one.n_generated for one in transcripts)
    per_prompt = max(1, len(transcripts) // max(1, len(prompts)))
    leaders = transcripts[::per_prompt]  # further choices find their prompt in the cache by design
    n_cached = sum(one.prefilled.n_reused for one in leaders if one.prefilled)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def timings_of(transcripts: Sequence[Transcript]) -> Json:
    """Where the time went, in milliseconds; rates are tokens per second over all choices."""
    first = transcripts[0]
    submitted = first.submitted
    started = min((one.started for one in transcripts if one.started), default=submitted)
    heard = min((one.first_token for one in transcripts if one.first_token), default=0.0)
    ended = max(one.ended for one in transcripts)
    prefilled = first.prefilled
    n_prompt = prefilled.n_prompt - prefilled.n_reused if prefilled else 0
    prompt_s = prefilled.seconds if prefilled else 0.0
    n_generated = sum(one.n_generated for one in transcripts)
    decode_s = max(0.0, ended - heard) if heard else 0.0
    gaps = [gap for one in transcripts for gap in one.gaps]
    n_steps = len(gaps)
    return {
        "queue_ms": _ms(started - submitted),
        "ttft_ms": _ms(heard - submitted) if heard else None,
        "cache_n": prefilled.n_reused if prefilled else 0,
        "prompt_n": n_prompt,
        "prompt_ms": _ms(prompt_s),
        "prompt_per_second": _rate(n_prompt, prompt_s),
        "predicted_n": n_generated,
        "predicted_ms": _ms(decode_s),
        "predicted_per_second": _rate(n_steps, decode_s),
        "itl_p50_ms": _ms(median(gaps)) if gaps else None,
        "itl_max_ms": _ms(max(gaps)) if gaps else None,
    }


def extras(heading: Heading, transcripts: Sequence[Transcript]) -> Json:
    """What goes beyond OpenAI: the seed that repeats the answer, timings, warnings if any."""
    more: Json = {"seed": heading.seed, "timings": timings_of(transcripts)}
    if heading.warnings:
        more["warnings"] = list(heading.warnings)
    return more


def _head(heading: Heading, kind: str, prefix: str) -> Json:
    return {
        "id": f"{prefix}-{heading.id}",
        "object": kind,
        "created": heading.created,
        "model": heading.model,
        "system_fingerprint": heading.fingerprint,
    }


def _finish(one: Transcript) -> str:
    from minfer.serve.wire.transcript import FINISH_REASONS

    return FINISH_REASONS[one.stopped.reason] if one.stopped else "length"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rate(n: int, seconds: float) -> float | None:
    return round(n / seconds, 2) if seconds > 0 and n else None
