# store.proto sha256: 8a0020cbc24a64879621933e53cd7375f01c38866358d93230944de9cf1f87c5
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Caller(_message.Message):
    __slots__ = ("cache", "offline", "environment", "n_jobs")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    N_JOBS_FIELD_NUMBER: _ClassVar[int]
    cache: bytes
    offline: bool
    environment: _containers.RepeatedCompositeFieldContainer[EnvironmentVariable]
    n_jobs: int
    def __init__(self, cache: _Optional[bytes] = ..., offline: bool = ..., environment: _Optional[_Iterable[_Union[EnvironmentVariable, _Mapping]]] = ..., n_jobs: _Optional[int] = ...) -> None: ...

class EnvironmentVariable(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    value: bytes
    def __init__(self, name: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("label", "done", "total", "note")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    label: str
    done: int
    total: int
    note: str
    def __init__(self, label: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "exit_status", "hint", "candidates")
    CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    code: str
    exit_status: int
    hint: str
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, code: _Optional[str] = ..., exit_status: _Optional[int] = ..., hint: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("text", "label")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    text: str
    label: str
    def __init__(self, text: _Optional[str] = ..., label: _Optional[str] = ...) -> None: ...

class GetServerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerResponse(_message.Message):
    __slots__ = ("api_major", "version", "cache", "pid")
    API_MAJOR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    api_major: int
    version: str
    cache: bytes
    pid: int
    def __init__(self, api_major: _Optional[int] = ..., version: _Optional[str] = ..., cache: _Optional[bytes] = ..., pid: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("even_if_busy",)
    EVEN_IF_BUSY_FIELD_NUMBER: _ClassVar[int]
    even_if_busy: bool
    def __init__(self, even_if_busy: bool = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ("is_leaving", "n_active")
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    N_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    is_leaving: bool
    n_active: int
    def __init__(self, is_leaving: bool = ..., n_active: _Optional[int] = ...) -> None: ...

class ResolveRequest(_message.Message):
    __slots__ = ("caller", "reference")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    reference: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., reference: _Optional[str] = ...) -> None: ...

class ResolveResponse(_message.Message):
    __slots__ = ("progress", "resolved")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    resolved: ResolvedModel
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., resolved: _Optional[_Union[ResolvedModel, _Mapping]] = ...) -> None: ...

class ResolvedModel(_message.Message):
    __slots__ = ("path", "was_cached")
    PATH_FIELD_NUMBER: _ClassVar[int]
    WAS_CACHED_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    was_cached: bool
    def __init__(self, path: _Optional[bytes] = ..., was_cached: bool = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("caller", "page_size", "page_token")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    page_size: int
    page_token: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("models", "next_page_token", "directory", "exists", "unreadable")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    next_page_token: str
    directory: bytes
    exists: bool
    unreadable: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., directory: _Optional[bytes] = ..., exists: bool = ..., unreadable: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("path", "spelling", "reference", "source", "n_bytes", "n_parts", "missing", "state")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SPELLING_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    N_BYTES_FIELD_NUMBER: _ClassVar[int]
    N_PARTS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    spelling: str
    reference: str
    source: str
    n_bytes: int
    n_parts: int
    missing: _containers.RepeatedScalarFieldContainer[str]
    state: str
    def __init__(self, path: _Optional[bytes] = ..., spelling: _Optional[str] = ..., reference: _Optional[str] = ..., source: _Optional[str] = ..., n_bytes: _Optional[int] = ..., n_parts: _Optional[int] = ..., missing: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("caller", "reference", "page_size", "page_token")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    reference: str
    page_size: int
    page_token: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., reference: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("parts", "n_bytes", "gguf_version", "metadata", "tensors", "next_page_token")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    N_BYTES_FIELD_NUMBER: _ClassVar[int]
    GGUF_VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedScalarFieldContainer[str]
    n_bytes: int
    gguf_version: int
    metadata: _containers.RepeatedCompositeFieldContainer[MetadataEntry]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    next_page_token: str
    def __init__(self, parts: _Optional[_Iterable[str]] = ..., n_bytes: _Optional[int] = ..., gguf_version: _Optional[int] = ..., metadata: _Optional[_Iterable[_Union[MetadataEntry, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MetadataEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "shape", "quant", "n_bytes", "part")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    QUANT_FIELD_NUMBER: _ClassVar[int]
    N_BYTES_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    quant: str
    n_bytes: int
    part: int
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., quant: _Optional[str] = ..., n_bytes: _Optional[int] = ..., part: _Optional[int] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("caller", "reference", "detach")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    reference: str
    detach: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., reference: _Optional[str] = ..., detach: bool = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("progress", "pulled", "detached")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PULLED_FIELD_NUMBER: _ClassVar[int]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    pulled: ResolvedModel
    detached: Detached
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., pulled: _Optional[_Union[ResolvedModel, _Mapping]] = ..., detached: _Optional[_Union[Detached, _Mapping]] = ...) -> None: ...

class Detached(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("caller", "references", "force")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    references: _containers.RepeatedScalarFieldContainer[str]
    force: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., references: _Optional[_Iterable[str]] = ..., force: bool = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedCompositeFieldContainer[RemovedModel]
    def __init__(self, removed: _Optional[_Iterable[_Union[RemovedModel, _Mapping]]] = ...) -> None: ...

class RemovedModel(_message.Message):
    __slots__ = ("path", "n_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    N_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    n_bytes: int
    def __init__(self, path: _Optional[bytes] = ..., n_bytes: _Optional[int] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("caller", "references")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    references: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., references: _Optional[_Iterable[str]] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("progress", "finding")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FINDING_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    finding: Finding
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., finding: _Optional[_Union[Finding, _Mapping]] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("path", "state", "problem")
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    state: str
    problem: str
    def __init__(self, path: _Optional[bytes] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("kind", "model")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[WatchResponse.Kind]
        KIND_PRESENT: _ClassVar[WatchResponse.Kind]
        KIND_CHANGED: _ClassVar[WatchResponse.Kind]
        KIND_REMOVED: _ClassVar[WatchResponse.Kind]
        KIND_SETTLED: _ClassVar[WatchResponse.Kind]
    KIND_UNSPECIFIED: WatchResponse.Kind
    KIND_PRESENT: WatchResponse.Kind
    KIND_CHANGED: WatchResponse.Kind
    KIND_REMOVED: WatchResponse.Kind
    KIND_SETTLED: WatchResponse.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    kind: WatchResponse.Kind
    model: Model
    def __init__(self, kind: _Optional[_Union[WatchResponse.Kind, str]] = ..., model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("caller", "reference")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    reference: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., reference: _Optional[str] = ...) -> None: ...

class HoldResponse(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("server", "uptime_s", "n_calls", "idle_s", "n_models", "is_watching", "pulls", "tcp_address")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    N_CALLS_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    N_MODELS_FIELD_NUMBER: _ClassVar[int]
    IS_WATCHING_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    TCP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    server: GetServerResponse
    uptime_s: float
    n_calls: int
    idle_s: float
    n_models: int
    is_watching: bool
    pulls: _containers.RepeatedCompositeFieldContainer[DetachedPull]
    tcp_address: str
    def __init__(self, server: _Optional[_Union[GetServerResponse, _Mapping]] = ..., uptime_s: _Optional[float] = ..., n_calls: _Optional[int] = ..., idle_s: _Optional[float] = ..., n_models: _Optional[int] = ..., is_watching: bool = ..., pulls: _Optional[_Iterable[_Union[DetachedPull, _Mapping]]] = ..., tcp_address: _Optional[str] = ...) -> None: ...

class DetachedPull(_message.Message):
    __slots__ = ("reference", "progress", "state", "problem")
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    reference: str
    progress: Progress
    state: str
    problem: str
    def __init__(self, reference: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...
