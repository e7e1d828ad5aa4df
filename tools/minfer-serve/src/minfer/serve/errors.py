"""What can go wrong with a request, and OpenAI's JSON for it."""

from __future__ import annotations

from typing import Any, Final

from minfer.core.errors import ContextOverflowError, MinferError, ModelNotFoundError, UsageError


class RequestError(UsageError):
    """A request that cannot be meant; `param` is the field at fault, as a dotted path."""

    code = "invalid-request"

    def __init__(self, fact: str, *, param: str | None = None, hint: str = "") -> None:
        super().__init__(fact, hint=hint)
        self.param = param


class UnsupportedFieldError(RequestError):
    """A field asks for what this server cannot do; ignoring it would change the meaning."""

    code = "unsupported-parameter"


class UnknownFieldError(RequestError):
    """A field that means nothing here, under --strict."""

    code = "unknown-parameter"


class WrongModelError(ModelNotFoundError):
    """The request names a model that this server does not have."""

    code = "model-not-served"


class ContextLengthError(ContextOverflowError):
    """The prompt leaves no room for one token. LangChain and litellm know it by "prompt is too long"."""

    code = "context-length-exceeded"

    def __init__(self, n_prompt: int, n_ctx: int, *, is_least: bool = False) -> None:
        """is_least: whether the prompt was not counted, and has n_prompt tokens or more."""
        counted = f"at least {n_prompt}" if is_least else f"{n_prompt}"
        super().__init__(
            f"the prompt is too long: it has {counted} tokens, this server's context {n_ctx}",
            hint="shorten the prompt, or start the server with a larger --n-ctx if the model allows more",
        )
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


class InvalidKeyError(UsageError):
    """No API key, or one that this server does not know."""

    code, http_status = "invalid-api-key", 401


class ForbiddenError(UsageError):
    """The Host or Origin of the request is not one that this server answers."""

    code, http_status = "forbidden", 403


class UnknownRouteError(UsageError):
    """There is nothing at that path."""

    code, http_status = "unknown-url", 404


class WrongMethodError(UsageError):
    """The path exists, for another method."""

    code, http_status = "method-not-allowed", 405


class BodyTooLargeError(UsageError):
    """The request body exceeds the limit."""

    code, http_status = "body-too-large", 413


class BodyTooSlowError(UsageError):
    """The request body did not arrive in time."""

    code, http_status = "body-timeout", 408


class ContentTypeError(UsageError):
    """The body is not announced as JSON."""

    code, http_status = "unsupported-media-type", 415


class BusyError(MinferError):
    """The server cannot take the request now; `retry_after` seconds from now it may."""

    code, http_status = "busy", 503

    def __init__(self, fact: str, *, hint: str = "", retry_after: int = 1) -> None:
        super().__init__(fact, hint=hint)
        self.retry_after = retry_after


class QueueFullError(BusyError):
    """All slots are taken and the queue is full."""

    code, http_status = "queue-full", 429


class LoadingError(BusyError):
    """The model is still being loaded."""

    code = "model-loading"


class ShuttingDownError(BusyError):
    """The server finishes what it has begun and takes nothing new."""

    code = "shutting-down"


class DeadlineError(UsageError):
    """The request's own time was over before it had produced anything."""

    code, http_status = "deadline-exceeded", 408


class EngineFailedError(MinferError):
    """The generation loop ended unexpectedly."""

    code = "engine-failed"


_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES: Final = {"model-not-served": "model_not_found", "prompt-too-long": "context_length_exceeded"}


def error_body(error: MinferError) -> dict[str, Any]:
    """OpenAI's JSON of an error: `{"error": {"message", "type", "param", "code"}}`, and numbers if any."""
    kind = _TYPES.get(error.http_status)
    if kind is None:
        kind = "invalid_request_error" if error.http_status < 500 else "server_error"
    inner: dict[str, Any] = {
        "message": f"{error.fact} ({error.hint})" if error.hint else error.fact,
        "type": kind,
        "param": getattr(error, "param", None) or getattr(error, "name", None),
        "code": _CODES.get(error.code, error.code.replace("-", "_")),
    }
    if isinstance(error, ContextLengthError):
        inner |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
    return {"error": inner}


def error_headers(error: MinferError) -> dict[str, str]:
    """Headers that belong to an error's answer."""
    if isinstance(error, BusyError):
        return {"retry-after": str(error.retry_after)}
    if isinstance(error, DeadlineError):
        return {"x-should-retry": "false"}  # OpenAI's clients would try a 408 again, as late as before
    if isinstance(error, InvalidKeyError):
        return {"www-authenticate": "Bearer"}
    return {}
