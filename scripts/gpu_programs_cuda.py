"""The programs of gpu_check.sh that need a GPU: streams, CUDA graphs, forks, NCCL, a memory history."""

from __future__ import annotations

import multiprocessing
import os
import tempfile

import torch

STEPS = 6
#: Kernels in each of two branches that run at the same time.
BRANCH = 4


def programs(common):
    """Return the programs by name; ``common`` is the module gpu_programs, which may be ``__main__``."""

    def graph(device):
        """Two CUDA graphs of equal length, each of a whole training step."""
        step, _, _x = common.training(device)
        other, _, _ = common.training(device)
        _warm(step, other)
        captured = [_captured(step), _captured(other)]
        for _ in range(STEPS):
            for made in captured:
                made.replay()
        torch.cuda.synchronize()
        return {"graphs": len(captured), "replays": STEPS * len(captured), "warm": 6}

    def copies(device):
        """Copies in both directions, and on the device, in a CUDA graph that is replayed."""
        torch.manual_seed(0)
        size = common.SIZES[device][0]
        host = torch.randn(size, size).pin_memory()
        back = torch.empty(size, size).pin_memory()
        a, b = (torch.zeros(size, size, device=device) for _ in range(2))
        weight = torch.randn(size, size, device=device)

        def once():
            a.copy_(host, non_blocking=True)
            b.copy_(a @ weight)
            back.copy_(b, non_blocking=True)

        _warm(once)
        made = _captured(once)
        for _ in range(STEPS):
            made.replay()
        torch.cuda.synchronize()
        # "warm_up": the runs before the capture
        return {"replays": STEPS, "warm_up": 3, "bytes": host.numel() * host.element_size(),
                "right": bool(torch.allclose(back, b.cpu()))}  # fmt: skip

    def branches(device):
        """A CUDA graph of two parallel branches: products on one, elementwise kernels on the other."""
        torch.manual_seed(0)
        size = common.SIZES[device][0]
        a, b = (torch.randn(size, size, device=device) / size for _ in range(2))
        c = torch.randn(16 * size, size, device=device)
        side = torch.cuda.Stream()

        def once():
            here = torch.cuda.current_stream()
            side.wait_stream(here)
            x, y = a, c
            for _ in range(BRANCH):
                x = x @ b
                with torch.cuda.stream(side):
                    y = torch.cos(y)
            here.wait_stream(side)
            return x, y

        _warm(once)
        made = _captured(once)
        for _ in range(STEPS):
            made.replay()
        torch.cuda.synchronize()
        return {"replays": STEPS, "each": BRANCH}

    def streams(device):
        """Two concurrent streams that wait for each other through events."""
        torch.manual_seed(0)
        width, batch, length, _ = common.SIZES[device]
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        a = torch.randn(batch * length, width, device=device)
        b = torch.randn(width, width, device=device)
        torch.cuda.synchronize()
        for _ in range(STEPS):
            with torch.cuda.stream(first):
                left = a @ b
                ready = first.record_event()
            with torch.cuda.stream(second):
                right = torch.relu(a)
                second.wait_event(ready)
                left.add_(right)
                left.record_stream(second)
        torch.cuda.synchronize()
        products = 2 * batch * length * width * width
        return {"streams": 2, "matrix_flops": products * STEPS, "steps": 0}

    def worker(device="cuda"):
        """The work of each forked process; its parent has imported torch but not initialised CUDA."""
        step, _, _ = common.training(device)
        return common.repeated(step, device)

    def fork(device):
        """Two forked workers, each of which initialises CUDA itself; the parent never does."""
        context = multiprocessing.get_context("fork")
        ends = []
        workers = []
        for _ in range(2):
            mine, theirs = context.Pipe(duplex=False)
            one = context.Process(target=lambda end=theirs: end.send(worker(device)))
            one.start()
            theirs.close()
            workers.append(one)
            ends.append(mine)
        found = [end.recv() for end in ends]
        for one in workers:
            one.join()
        used = device == "cuda" and torch.cuda.is_initialized()
        return {"workers": len(found), "steps": found[0]["steps"], "parent_used_cuda": used}

    def history(device):
        """A program that records its own GPU memory history during its whole training."""
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(max_entries=100_000)
        step, _, _ = common.training(device)
        found = common.repeated(step, device)
        events = sum(map(len, torch.cuda.memory._snapshot()["device_traces"]))
        still = torch._C._cuda_isHistoryEnabled()
        torch.cuda.memory._record_memory_history(enabled=None)
        return found | {"events": events, "still_on": bool(still)}

    def nccl(device):
        """NCCL with one rank: DistributedDataParallel, and explicit collectives."""
        import torch.distributed as dist

        backend = "nccl" if device == "cuda" else "gloo"
        with tempfile.TemporaryDirectory() as folder:
            store = f"file://{os.path.join(folder, 'store')}"
            if device == "cuda":
                torch.cuda.set_device(0)
            dist.init_process_group(backend, init_method=store, rank=0, world_size=1)
            torch.manual_seed(0)
            model = torch.nn.Linear(1024, 1024, device=device)
            parallel = torch.nn.parallel.DistributedDataParallel(model)
            optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3)
            x = torch.randn(64, 1024, device=device)

            def step():
                optimizer.zero_grad()
                loss = parallel(x).pow(2).mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            found = common.repeated(step, device)
            whole = torch.ones(1 << 20, device=device)
            gathered = torch.empty_like(whole)
            for _ in range(STEPS):
                dist.all_reduce(whole)
                dist.all_gather_into_tensor(gathered, whole)
                if device == "cuda":
                    dist.reduce_scatter_tensor(gathered, whole)
                dist.broadcast(whole, 0)
            common.wait(device)
            dist.destroy_process_group()
        return found | {"collectives": STEPS, "elements": 1 << 20}

    made = (graph, copies, branches, streams, worker, fork, history, nccl)
    return {one.__name__: one for one in made}


def _warm(*steps):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            for one in steps:
                one()
    torch.cuda.current_stream().wait_stream(side)


def _captured(step):
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        step()
    return made
