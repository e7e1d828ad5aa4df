"""Counters and histograms for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from minfer.serve.scheduling.engine_thread import Snapshot

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_GAPS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 1, 2.5)


class Metrics:
    """Everything /metrics shows; each server has its own registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, registry=registry)

        self.requests = counter("minfer_requests", "HTTP requests by route and status", "route", "status")
        self.finished = counter("minfer_choices_finished", "Finished choices by reason", "reason")
        self.prompt_tokens = counter("minfer_prompt_tokens", "Tokens of prompts")
        self.cached_tokens = counter("minfer_cached_prompt_tokens", "Tokens of prompts found in the cache")
        self.generated_tokens = counter("minfer_generated_tokens", "Tokens generated")
        self.queue = histogram("minfer_queue_seconds", "Time from arrival to a slot", _SECONDS)
        self.ttft = histogram("minfer_time_to_first_token_seconds", "Time from arrival to first token",
                              _SECONDS)  # fmt: skip
        self.gaps = histogram("minfer_inter_token_seconds", "Time between two tokens of a choice", _GAPS)
        self.duration = histogram("minfer_request_seconds", "Time from arrival to the end", _SECONDS)
        self._running = gauge("minfer_requests_running", "Choices that have a slot")
        self._waiting = gauge("minfer_requests_waiting", "Choices that wait for a slot")
        self._use = gauge("minfer_kv_cache_usage_ratio", "Share of the KV cache's positions in use")
        self._slots = gauge("minfer_slots", "Choices that may run at once")
        self._preempted = gauge("minfer_preemptions", "Times a choice lost its cache to an older one")
        self._steps = gauge("minfer_steps", "Steps of the model")

    def text(self, snapshot: Snapshot | None, n_slots: int) -> bytes:
        """The exposition, the engine's state as of its last step."""
        self._slots.set(n_slots)
        if snapshot is not None:
            n_used = snapshot.n_positions - snapshot.n_positions_free
            self._running.set(len(snapshot.slots))
            self._waiting.set(snapshot.n_waiting)
            self._use.set(n_used / max(1, snapshot.n_positions))
            self._preempted.set(snapshot.n_preempted)
            self._steps.set(snapshot.n_steps)
        return generate_latest(self._registry)
