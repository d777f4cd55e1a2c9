"""The votes on a few queries, recorded once as a CUDA graph and replayed, because launching would take half the time.

On an H200 a query on ten million references takes about 0.3 ms of GPU time, and about ten launches take half as long.
"""

from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor

from dwac.engine.backends import Backend
from dwac.engine.index import Index
from dwac.engine.precision import Policy, rounding_unit

FEW = 16  # queries: more take longer than launching
_ONE_AT_A_TIME = Lock()  # recordings have one input and one answer each


class Recording:
    """The log class weights of n queries against an index, and whether float32 leaves any of them in doubt."""

    def __init__(self, index: Index, backend: Backend, policy: Policy, n: int) -> None:
        self.queries = torch.zeros(n, index.embeddings.shape[1], device=index.embeddings.device)
        self.doubt = torch.zeros((), dtype=torch.bool, pin_memory=True)
        stream = torch.cuda.Stream(self.queries.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # recording requires a run before it, on a separate stream
            self._compute(index, backend, policy)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.votes = self._compute(index, backend, policy)

    def _compute(self, index: Index, backend: Backend, policy: Policy) -> Tensor:
        # The index is not kept: it keeps the recording, and a cycle would delay the release of its memory.
        centred = torch.sub(self.queries, index.centre, out=torch.empty_like(self.queries))
        sweep = backend.sweep(index, centred, 0)
        unit = rounding_unit(centred.shape[1], torch.float32, backend)
        unsure = policy.unsure(index, sweep.log_class_weights, sweep.norms, None, unit, single=True)
        self.doubt.copy_(unsure.any(), non_blocking=True)
        return sweep.log_class_weights

    def replay(self, queries: Tensor) -> Tensor | None:
        """The log class weights, (n, K) float64; None if any is in doubt."""
        self.queries.copy_(queries)
        self.graph.replay()
        votes = self.votes.clone()
        torch.cuda.current_stream().synchronize()
        return None if self.doubt.item() else votes


class Recordings(dict[int, Recording]):
    """The recordings of an index, by number of queries. A copy of the index records its own."""

    def __reduce__(self) -> tuple[type[Recordings], tuple[()]]:
        return Recordings, ()


def answer_few(index: Index, queries: Tensor, backend: Backend, policy: Policy) -> Tensor | None:
    """The log class weights of a few queries (n, d), (n, K) float64; None if one sweep in float32 is not enough."""
    single = queries.dtype == torch.float32 == index.folded.dtype and index.kernel.name == "gaussian" and index.halves
    if not single or not queries.is_cuda or torch.cuda.is_current_stream_capturing():
        return None
    recordings: Recordings = vars(index).setdefault("_recordings", Recordings())
    with _ONE_AT_A_TIME, torch.cuda.device_of(queries):
        if len(queries) not in recordings:
            with torch.inference_mode(False), torch.no_grad():
                recordings[len(queries)] = Recording(index, backend, policy, len(queries))
        return recordings[len(queries)].replay(queries)
