"""Write the schedule that AIPerf's AgentX client makes of recorded runs, in virtual time.

The client's own timing stack (trajectories, strategy, branches, barriers, idle guards, phases)
runs unchanged on an event loop whose clock jumps to the next timer, against a stand-in for its
workers that answers after a fixed time. What it sends, and when, is what Weir's scheduler is
compared with (internal/replay, TestScheduleEqualsAgentX).

    python -m venv env && env/bin/pip install agentx-harness==1.0.12
    env/bin/python scripts/agentx/schedule.py TRACES LANES SECONDS SLOWER PRESSURE ERRORS MODE > FILE

A request takes SLOWER x its recorded service time, a tenth of that in the warm-up, at least 1 ms.
With ERRORS 1 some profiling requests fail, chosen by the SHA-256 of "stream:turn": a plain
error where its first byte is divisible by 16, a context overflow where its second is by 40.
MODE is "spread", or "burst" for phases that start at once, or "time" for PRESSURE in seconds in
place of requests per lane.
"""

import asyncio
import hashlib
import sys
import time
import types
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait: its clock jumps to the next timer.

    Every reading of the clock moves it by 0.1 us, as real ones differ; the client relies on
    two timers that it sets one after the other not being due at one instant.
    """

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        poll = self._selector.select

        def select(timeout=None):
            if timeout is None:
                return poll(0.05)
            events = poll(0)
            if timeout > 0 and not events:
                after = self._scheduled[0]._when if self._scheduled else self.now + timeout
                self.now = max(self.now, after)
            return events

        self._selector.select = select
        self._clock_resolution = 1e-9

    def time(self):
        self.now += 1e-7
        return self.now


traces, lanes, seconds, slower, pressure, errors, mode = sys.argv[1:8]
lanes, seconds, slower, pressure, errors = int(lanes), float(seconds), float(slower), int(pressure), errors == "1"
loop = VirtualLoop()
asyncio.set_event_loop(loop)
time.monotonic = time.perf_counter = time.time = loop.time
time.monotonic_ns = time.perf_counter_ns = time.time_ns = lambda: int(loop.time() * 1e9)

import aiperf.dataset.loader.weka_trace as weka  # noqa: E402
from aiperf.common import random_generator  # noqa: E402
from aiperf.common.enums import CacheBustTarget, CreditPhase  # noqa: E402
from aiperf.common.environment import Environment  # noqa: E402
from aiperf.common.models import DatasetMetadata  # noqa: E402
from aiperf.credit.messages import CreditReturn  # noqa: E402
from aiperf.dataset.loader import weka_synth_buf  # noqa: E402
from aiperf.dataset.loader._delay_cap import DelayCapTracker  # noqa: E402
from aiperf.plugin.enums import TimingMode  # noqa: E402
from aiperf.timing.config import CreditPhaseConfig, TimingConfig  # noqa: E402
from aiperf.timing.phase_orchestrator import PhaseOrchestrator  # noqa: E402


def load(path):
    """Load the traces with their topology and times, and one word in place of every prompt."""

    class Delta:
        delta_messages = [{"role": "user", "content": "x"}]
        reset_context = False

    class NoText:
        def __init__(self, **_):
            pass

        def init_turn_0(self, **_):
            pass

        def advance_turn(self, **_):
            pass

        def turn_delta(self):
            return Delta

    weka_synth_buf.ConversationReconstructor = NoText
    weka_synth_buf.compute_asst_block_caps = lambda turns, _: [None] * len(turns)
    Environment.DATASET.WEKA_PARALLEL_WORKERS = 1
    cls = weka.WekaTraceLoader
    cls.sample_partial_tail_tokens = lambda *_, **__: []
    cls.bpe_stable_terminator_tokens = property(lambda _: [])
    cls._decode_block_tokens = lambda *_: []
    cls._new_reconstructor = lambda *_: NoText()
    loader = cls.__new__(cls)
    config = types.SimpleNamespace(
        get_default_dataset=lambda: types.SimpleNamespace(model_fields_set=set(), entries=None))
    for name, value in dict(
        prompt_generator=MagicMock(), run=types.SimpleNamespace(cfg=config), _path=Path(path), _block_size=64,
        _configured_model_names=[], _max_isl=None, _max_osl=None, _max_context_length=None,
        _ignore_trace_delays=False, _use_think_time_only=False, _inter_turn_delay_cap_seconds=None,
        _fixed_schedule_start_offset=None, _fixed_schedule_end_offset=None, _user_block_size_override=None,
        _tool_shaped_messages=False, _delay_cap_tracker=DelayCapTracker(cap_seconds=None),
    ).items():
        setattr(loader, name, value)
    conversations = loader.convert_to_conversations(loader.load_dataset())
    return DatasetMetadata(
        conversations=[c.to_metadata() for c in conversations],
        sampling_strategy=cls.get_preferred_sampling_strategy())


class Workers:
    """Stands in for the router: takes credits and returns them after the service time."""

    def __init__(self, dataset):
        self.turns = {c.conversation_id: c.turns for c in dataset.conversations}
        self.flying = {}
        self.log = []

    def set_return_callback(self, f):
        self.give_back = f

    def set_first_token_callback(self, f):
        pass

    def mark_credits_complete(self):
        pass

    async def wait_for_workers(self, timeout):
        pass

    def end(self, credit, **outcome):
        asyncio.ensure_future(self.give_back("w", CreditReturn(credit=credit, first_token_sent=True, **outcome)))

    async def cancel_all_credits(self):
        for credit, timer in list(self.flying.values()):
            timer.cancel()
            self.end(credit, cancelled=True)
        self.flying.clear()

    async def send_credit(self, credit):
        warmup = credit.phase == CreditPhase.WARMUP
        self.log.append((loop.time(), warmup, credit.conversation_id, credit.turn_index))
        api = (self.turns[credit.conversation_id][credit.turn_index].api_time_ms or 0) / 1000 * slower
        error = None
        if errors and not warmup:
            digest = hashlib.sha256(f"{credit.conversation_id}:{credit.turn_index}".encode()).digest()
            if digest[0] % 16 == 0:
                error = "HTTP 500"
            if digest[1] % 40 == 0:
                error = "this model's maximum context length is 4096 tokens"

        def done():
            del self.flying[id(credit)]
            self.end(credit, error=error)

        self.flying[id(credit)] = credit, loop.call_later(max(api / (10 if warmup else 1), 0.001), done)


class Publisher:
    def __getattr__(self, name):
        return AsyncMock()


dataset = load(traces)
random_generator.init(42)
profiling = types.SimpleNamespace(burst_phase_starts=mode == "burst", system_idle_gap_cap_seconds=10.0)
run = types.SimpleNamespace(benchmark_id="x", cfg=types.SimpleNamespace(
    get_cache_bust_target=lambda: CacheBustTarget.FIRST_TURN_PREFIX,
    get_profiling_phases=lambda: [profiling],
    get_default_dataset=lambda: types.SimpleNamespace(trace_idle_gap_cap_seconds=300.0)))
phases = [
    CreditPhaseConfig(phase=CreditPhase.WARMUP, timing_mode=TimingMode.AGENTIC_REPLAY, concurrency=lanes,
                      warmup_requests_per_lane=pressure if pressure and mode != "time" else None,
                      agentic_cache_warmup_duration_sec=float(pressure) if mode == "time" else None,
                      grace_period_sec=1800.0),
    CreditPhaseConfig(phase=CreditPhase.PROFILING, timing_mode=TimingMode.AGENTIC_REPLAY, concurrency=lanes,
                      expected_duration_sec=seconds, grace_period_sec=30.0),
]
workers = Workers(dataset)


async def main():
    timing = TimingConfig(phase_configs=phases, concurrency=lanes, random_seed=42, allow_dataset_wrap=True,
                          trajectory_start_min_ratio=0.25, trajectory_start_max_ratio=0.75)
    await PhaseOrchestrator(config=timing, phase_publisher=Publisher(), credit_router=workers,
                            dataset_metadata=dataset, run=run)._execute_phases()


loop.run_until_complete(main())
began = {warmup: at for at, warmup, _, _ in reversed(workers.log)}
print("# agentx-harness 1.0.12: phase, seconds since its first request, stream/turn;", *sys.argv[2:8])
for at, warmup, stream, turn in workers.log:
    print("warmup" if warmup else "profiling", f"{at - began[warmup]:.3f}", f"{stream}/{turn}", sep="\t")
