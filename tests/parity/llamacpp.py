"""llama.cpp as an oracle: the C library inside the xllamacpp wheel, through ctypes.

    with LlamaModel(path) as model, LlamaContext(model, n_ctx=512, kv_type="f32") as context:
        ids = model.tokenize("Hello", add_special=True, parse_special=False)
        logits = context.decode(ids)              # float32 [len(ids), n_vocab]

Sampler objects are in llamacpp_samplers.py. Struct layouts are those of release 11549; `library()` compares
them with what the library's own default-parameter functions write and raises LayoutError where they differ,
so an upgrade of the wheel that moves a field is found before it corrupts memory. Models run on the CPU,
silently.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import pytest

FloatArray = npt.NDArray[np.float32]
KV_TYPES: Final = {"f32": 0, "f16": 1}
_DISABLED: Final = 0
_AUTO: Final = -1
_STRING: Final = 3


class LayoutError(Exception):
    """The library's structs are not laid out as this binding states."""


class _ModelParams(ctypes.Structure):
    _fields_ = [
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("unknown_int", ctypes.c_int32),  # newer than the headers at hand; its default is 1
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    ]


class _ContextParams(ctypes.Structure):
    _fields_ = [
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("n_rs_seq", ctypes.c_uint32),
        ("n_outputs_max", ctypes.c_uint32),
        ("n_outputs_max_per_seq", ctypes.c_uint32),
        ("n_threads", ctypes.c_int32),
        ("n_threads_batch", ctypes.c_int32),
        ("ctx_type", ctypes.c_int32),
        ("rope_scaling_type", ctypes.c_int32),
        ("pooling_type", ctypes.c_int32),
        ("attention_type", ctypes.c_int32),
        ("flash_attn_type", ctypes.c_int32),
        ("rope_freq_base", ctypes.c_float),
        ("rope_freq_scale", ctypes.c_float),
        ("yarn_ext_factor", ctypes.c_float),
        ("yarn_attn_factor", ctypes.c_float),
        ("yarn_beta_fast", ctypes.c_float),
        ("yarn_beta_slow", ctypes.c_float),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("unknown_pointer", ctypes.c_void_p),  # newer than the headers at hand; its default is null
        ("embeddings", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("no_perf", ctypes.c_bool),
        ("op_offload", ctypes.c_bool),
        ("swa_full", ctypes.c_bool),
        ("kv_unified", ctypes.c_bool),
        ("samplers", ctypes.c_void_p),
        ("n_samplers", ctypes.c_size_t),
        ("ctx_other", ctypes.c_void_p),
    ]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class _Override(ctypes.Structure):
    """A metadata value that replaces the file's; the union of values begins at a multiple of eight."""

    _fields_ = [
        ("tag", ctypes.c_int32),
        ("key", ctypes.c_char * 128),
        ("padding", ctypes.c_int32),
        ("text", ctypes.c_char * 128),
    ]


class Candidate(ctypes.Structure):
    """One token that may be drawn: id, logit, probability."""

    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class Candidates(ctypes.Structure):
    """What samplers change: an array of Candidate, its length, the index of the one selected."""

    _fields_ = [
        ("data", ctypes.POINTER(Candidate)),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    ]


class LogitBias(ctypes.Structure):
    """A token and what is added to its logit."""

    _fields_ = [("token", ctypes.c_int32), ("bias", ctypes.c_float)]


_POINTER, _INT, _FLOAT, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_float, ctypes.c_bool
_SIZE, _SEED = ctypes.c_size_t, ctypes.c_uint32
_SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "ggml_log_set": (None, (_POINTER, _POINTER)),
    "llama_log_set": (None, (_POINTER, _POINTER)),
    "llama_backend_init": (None, ()),
    "llama_model_default_params": (_ModelParams, ()),
    "llama_context_default_params": (_ContextParams, ()),
    "llama_model_load_from_file": (_POINTER, (ctypes.c_char_p, _ModelParams)),
    "llama_model_free": (None, (_POINTER,)),
    "llama_model_get_vocab": (_POINTER, (_POINTER,)),
    "llama_vocab_n_tokens": (_INT, (_POINTER,)),
    "llama_vocab_type": (_INT, (_POINTER,)),
    "llama_vocab_get_text": (ctypes.c_char_p, (_POINTER, _INT)),
    "llama_vocab_get_attr": (_INT, (_POINTER, _INT)),
    "llama_vocab_is_eog": (_BOOL, (_POINTER, _INT)),
    "llama_vocab_is_control": (_BOOL, (_POINTER, _INT)),
    "llama_vocab_bos": (_INT, (_POINTER,)),
    "llama_vocab_eos": (_INT, (_POINTER,)),
    "llama_vocab_eot": (_INT, (_POINTER,)),
    "llama_vocab_get_add_bos": (_BOOL, (_POINTER,)),
    "llama_vocab_get_add_eos": (_BOOL, (_POINTER,)),
    "llama_tokenize": (_INT, (_POINTER, ctypes.c_char_p, _INT, ctypes.POINTER(_INT), _INT, _BOOL, _BOOL)),
    "llama_token_to_piece": (_INT, (_POINTER, _INT, ctypes.c_char_p, _INT, _INT, _BOOL)),
    "llama_detokenize": (
        _INT,
        (_POINTER, ctypes.POINTER(_INT), _INT, ctypes.c_char_p, _INT, _BOOL, _BOOL),
    ),
    "llama_init_from_model": (_POINTER, (_POINTER, _ContextParams)),
    "llama_free": (None, (_POINTER,)),
    "llama_batch_init": (_Batch, (_INT, _INT, _INT)),
    "llama_batch_free": (None, (_Batch,)),
    "llama_decode": (_INT, (_POINTER, _Batch)),
    "llama_get_logits_ith": (ctypes.POINTER(_FLOAT), (_POINTER, _INT)),
    "llama_get_memory": (_POINTER, (_POINTER,)),
    "llama_memory_clear": (None, (_POINTER, _BOOL)),
    "llama_sampler_apply": (None, (_POINTER, ctypes.POINTER(Candidates))),
    "llama_sampler_accept": (None, (_POINTER, _INT)),
    "llama_sampler_free": (None, (_POINTER,)),
    "llama_sampler_init_top_k": (_POINTER, (_INT,)),
    "llama_sampler_init_top_p": (_POINTER, (_FLOAT, _SIZE)),
    "llama_sampler_init_min_p": (_POINTER, (_FLOAT, _SIZE)),
    "llama_sampler_init_typical": (_POINTER, (_FLOAT, _SIZE)),
    "llama_sampler_init_temp": (_POINTER, (_FLOAT,)),
    "llama_sampler_init_temp_ext": (_POINTER, (_FLOAT, _FLOAT, _FLOAT)),
    "llama_sampler_init_xtc": (_POINTER, (_FLOAT, _FLOAT, _SIZE, _SEED)),
    "llama_sampler_init_top_n_sigma": (_POINTER, (_FLOAT,)),
    "llama_sampler_init_dist": (_POINTER, (_SEED,)),
    "llama_sampler_init_greedy": (_POINTER, ()),
    "llama_sampler_init_mirostat": (_POINTER, (_INT, _SEED, _FLOAT, _FLOAT, _INT)),
    "llama_sampler_init_mirostat_v2": (_POINTER, (_SEED, _FLOAT, _FLOAT)),
    "llama_sampler_init_penalties": (_POINTER, (_INT, _INT, _FLOAT, _FLOAT, _FLOAT)),
    "llama_sampler_init_dry": (
        _POINTER,
        (_POINTER, _FLOAT, _FLOAT, _INT, _INT, ctypes.POINTER(ctypes.c_char_p), _SIZE),
    ),
    "llama_sampler_init_logit_bias": (_POINTER, (_INT, _INT, ctypes.POINTER(LogitBias))),
    "llama_sampler_init_grammar": (_POINTER, (_POINTER, ctypes.c_char_p, ctypes.c_char_p)),
}


def _discard(_level: int, _text: bytes, _data: int) -> None:
    """llama.cpp writes pages to stderr; tests want none of it."""


_discard_log: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_discard)


def _written_bytes(address: int, n_bytes: int) -> int:
    """How many leading bytes a function that returns a struct in memory writes, last one included.

    The hidden first argument of such a function is the place for the result (System V x86-64; AArch64
    passes it in x8, where this cannot be asked and the declared size is returned).
    """
    import platform

    if platform.machine() != "x86_64":
        return n_bytes
    results = []
    for fill in (0xCC, 0x33):
        place = (ctypes.c_uint8 * 1024)(*([fill] * 1024))
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(ctypes.addressof(place))
        results.append(bytes(place))
    return max(i for i in range(1024) if results[0][i] == results[1][i]) + 1


def _check_layout(lib: ctypes.CDLL) -> None:
    for name, kind, end in (
        ("llama_model_default_params", _ModelParams, _ModelParams.load_mtp.offset + 1),
        ("llama_context_default_params", _ContextParams, ctypes.sizeof(_ContextParams)),
    ):
        address = ctypes.cast(getattr(lib, name), ctypes.c_void_p).value or 0
        written = _written_bytes(address, end)
        if written != end:
            raise LayoutError(f"{name} writes {written} bytes; {kind.__name__} has {end}")
    model, context = lib.llama_model_default_params(), lib.llama_context_default_params()
    facts = (
        (model.n_gpu_layers, -1),
        (model.main_gpu, 0),
        ((model.vocab_only, model.check_tensors, model.use_extra_bufts), (False, False, True)),
        ((context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max), (512, 2048, 512, 1)),
        ((context.flash_attn_type, context.yarn_beta_slow, context.defrag_thold), (-1, -1.0, -1.0)),
        ((context.type_k, context.type_v), (KV_TYPES["f16"], KV_TYPES["f16"])),
        ((context.embeddings, context.offload_kqv, context.swa_full), (False, True, True)),
        ((context.kv_unified, context.samplers, context.ctx_other), (False, None, None)),
    )
    for found, expected in facts:
        if found != expected:
            raise LayoutError(f"default parameters hold {found}, expected {expected}")


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The C library with typed functions; skips the test where the xllamacpp wheel is not installed."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("xllamacpp is not installed")
    folder = Path(spec.submodule_search_locations[0])
    shared_objects = sorted(folder.glob("xllamacpp*.so")) + sorted(folder.glob("xllamacpp*.pyd"))
    lib = ctypes.CDLL(str(shared_objects[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    _check_layout(lib)
    lib.ggml_log_set(_discard_log, None)
    lib.llama_log_set(_discard_log, None)
    lib.llama_backend_init()
    return lib


class Owner:
    """Frees a C object at the end of a with block, or when garbage is collected."""

    handle: int | None = None  # until the object is made; a skip may come first

    def __init__(self, handle: int | None, free: str, what: str) -> None:
        if not handle:
            raise ValueError(f"llama.cpp cannot make {what}")
        self.handle = handle
        self._free = free

    def close(self) -> None:
        """Free it; harmless twice."""
        if self.handle:
            getattr(library(), self._free)(self.handle)
            self.handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LlamaModel(Owner):
    """A model, or with vocab_only its tokenizer alone (any GGUF, also those of shared/data/vocab)."""

    def __init__(
        self, path: Path | str, *, vocab_only: bool = False, overrides: Mapping[str, str] | None = None
    ) -> None:
        """`overrides`: string-valued metadata that replaces the file's."""
        lib = library()
        params = lib.llama_model_default_params()
        params.vocab_only, params.n_gpu_layers = vocab_only, 0
        texts = [
            _Override(_STRING, key.encode(), 0, text.encode()) for key, text in (overrides or {}).items()
        ]
        array = (_Override * (len(texts) + 1))(*texts)  # an empty key ends the list
        params.kv_overrides = ctypes.addressof(array)
        super().__init__(
            lib.llama_model_load_from_file(str(path).encode(), params),
            "llama_model_free",
            f"a model of {path}",
        )
        self.vocab: int = lib.llama_model_get_vocab(self.handle)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text: str | bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """The ids of a text; parse_special reads control tokens out of it."""
        data = text.encode() if isinstance(text, str) else text
        room = len(data) + 16
        while True:
            ids = (ctypes.c_int32 * room)()
            n = library().llama_tokenize(self.vocab, data, len(data), ids, room, add_special, parse_special)
            if n >= 0:
                return ids[:n]
            room = -n

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of one token; control tokens are empty unless special."""
        room = ctypes.create_string_buffer(1024)
        n = library().llama_token_to_piece(self.vocab, token, room, len(room), 0, special)
        if n < 0:
            raise ValueError(f"token {token} has a piece of {-n} bytes")
        return room.raw[:n]

    def detokenize(self, ids: Sequence[int], *, remove_special: bool = False, special: bool = False) -> bytes:
        """The bytes of a sequence of ids, as llama.cpp joins them."""
        array = (ctypes.c_int32 * max(1, len(ids)))(*ids)
        room = ctypes.create_string_buffer(256 * len(ids) + 16)
        n = library().llama_detokenize(self.vocab, array, len(ids), room, len(room), remove_special, special)
        return room.raw[:n]

    def text(self, token: int) -> bytes:
        """The token as the file spells it."""
        return bytes(library().llama_vocab_get_text(self.vocab, token))

    def attributes(self, token: int) -> int:
        """Bits: 1 unknown, 2 unused, 4 normal, 8 control, 16 user-defined, 32 byte."""
        return int(library().llama_vocab_get_attr(self.vocab, token))

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token."""
        return bool(library().llama_vocab_is_control(self.vocab, token))

    @property
    def end_of_generation(self) -> frozenset[int]:
        """Every id that ends a generation."""
        lib = library()
        return frozenset(i for i in range(self.n_vocab) if lib.llama_vocab_is_eog(self.vocab, i))

    def special(self, name: Literal["bos", "eos", "eot"]) -> int | None:
        """The id of a named special token, or None."""
        token = int(getattr(library(), f"llama_vocab_{name}")(self.vocab))
        return None if token < 0 else token

    @property
    def adds_bos(self) -> bool:
        """Whether add_special puts a BOS in front."""
        return bool(library().llama_vocab_get_add_bos(self.vocab))

    @property
    def adds_eos(self) -> bool:
        """Whether add_special puts an EOS behind."""
        return bool(library().llama_vocab_get_add_eos(self.vocab))


class LlamaContext(Owner):
    """A KV cache of one sequence. kv_type f32 takes one source of rounding away; flash attention is off
    unless asked for, because it rounds differently."""

    def __init__(
        self,
        model: LlamaModel,
        *,
        n_ctx: int = 512,
        n_threads: int = 2,
        kv_type: Literal["f16", "f32"] = "f16",
        flash_attention: bool = False,
    ) -> None:
        lib = library()
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = n_ctx
        params.n_ubatch = min(512, n_ctx)
        params.n_threads = params.n_threads_batch = n_threads
        params.type_k = params.type_v = KV_TYPES[kv_type]
        params.flash_attn_type = _AUTO if flash_attention else _DISABLED
        params.n_outputs_max = n_ctx
        params.n_outputs_max_per_seq = n_ctx
        super().__init__(lib.llama_init_from_model(model.handle, params), "llama_free", "a context")
        self._model, self.n_ctx, self.n_past = model, n_ctx, 0

    def decode(self, ids: Sequence[int], *, logits: Literal["all", "last"] = "all") -> FloatArray:
        """Feed ids after those fed before; float32 [len(ids) or 1, n_vocab]. At most n_ctx in all."""
        lib = library()
        if not ids or self.n_past + len(ids) > self.n_ctx:
            raise ValueError(f"{len(ids)} ids after {self.n_past} do not fit a context of {self.n_ctx}")
        batch = lib.llama_batch_init(len(ids), 0, 1)
        try:
            batch.n_tokens = len(ids)
            for i, token in enumerate(ids):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self.n_past + i, 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = logits == "all" or i == len(ids) - 1
            status = lib.llama_decode(self.handle, batch)
        finally:
            lib.llama_batch_free(batch)
        if status != 0:
            raise ValueError(f"llama_decode answers {status}")
        self.n_past += len(ids)
        rows = range(len(ids)) if logits == "all" else range(len(ids) - 1, len(ids))
        return np.stack([self._row(i) for i in rows])

    def _row(self, i: int) -> FloatArray:
        pointer = library().llama_get_logits_ith(self.handle, i)
        if not pointer:
            raise ValueError(f"no logits for row {i}")
        return np.ctypeslib.as_array(pointer, shape=(self._model.n_vocab,)).astype(np.float32)

    def clear(self) -> None:
        """Forget every position."""
        lib = library()
        lib.llama_memory_clear(lib.llama_get_memory(self.handle), True)
        self.n_past = 0
