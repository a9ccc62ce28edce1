#!/usr/bin/env python3
"""One rank of a DistributedDataParallel run for tests/e2e/test_ddp.py: trains a small network and writes what it had after each step.

RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, for --exchange iswitch, ISWITCH_SWITCH come from the environment.
"""

import argparse
import hashlib
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 128, 6, 16
BUCKET_BYTES = 128 * 1024  # so that even this network has several


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exchange", choices=["iswitch", "gloo"], required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--output", required=True, help="file: a JSON line a step, then one with figures")
    parser.add_argument("--weights", help="file for the last weights, raw float32")
    parser.add_argument("--timeout", type=float, default=30.0, help="deadline of an exchange")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--recover", action="store_true", help="after a reset go on from rank 0's weights")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps")
    return parser.parse_args()


def network():
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1))


def flat_weights(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def counted(inner, figures):
    """The hook, noting how many buckets a pass has and the largest local gradient."""

    def hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        figures["buckets"] = max(figures["buckets"], bucket.index() + 1)
        figures["largest_gradient"] = max(figures["largest_gradient"], bucket.buffer().abs().max().item())
        return inner(state, bucket)

    return hook


def broadcast_position(agent, step, model):
    """Rank 0's step and weights on all ranks; repeated until all ranks do it together. Gives the step."""
    import iswitch

    while True:
        try:
            position = torch.tensor([float(step)])
            weights = flat_weights(model)
            agent.broadcast(position, root=0).wait()
            agent.broadcast(weights, root=0).wait()
            break
        except (iswitch.JobReset, iswitch.Mismatch):
            continue
    offset = 0
    with torch.no_grad():
        for parameter in model.parameters():
            count = parameter.numel()
            parameter.copy_(weights[offset:offset + count].view_as(parameter))
            offset += count
    return int(position.item())


def train(options, model, agent, figures):
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.0)
    rank = dist.get_rank()
    with open(options.output, "w") as output:
        step = 0
        while step < options.steps:
            draw = torch.Generator().manual_seed(step * 1000 + rank)  # other data on each rank
            inputs = torch.randn(BATCH, WIDTH, generator=draw)
            targets = inputs.mean(dim=1, keepdim=True) * 10
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            try:
                loss.backward()
            except Exception as error:
                if not options.recover or type(error).__name__ not in ("JobReset", "Mismatch"):
                    raise
                figures["recoveries"] += 1
                step = broadcast_position(agent, step, model)
                continue
            optimizer.step()
            weights = flat_weights(model)
            row = {"step": step, "loss": loss.item(), "sha256": hashlib.sha256(weights.numpy().tobytes()).hexdigest()}
            output.write(json.dumps(row) + "\n")
            output.flush()
            step += 1
            time.sleep(options.pause)
        figures["weights_largest"] = flat_weights(model).abs().max().item()
        output.write(json.dumps(figures) + "\n")
    if options.weights:
        flat_weights(model).numpy().tofile(options.weights)


def main():
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)  # other weights on each rank until DDP makes them equal
    dist._DEFAULT_FIRST_BUCKET_BYTES = BUCKET_BYTES
    model = DistributedDataParallel(network(), bucket_cap_mb=BUCKET_BYTES / 2**20, static_graph=options.static_graph)
    figures = {"buckets": 0, "largest_gradient": 0.0, "recoveries": 0, "size": sum(p.numel() for p in model.parameters())}
    if options.exchange == "gloo":
        model.register_comm_hook(None, counted(default_hooks.allreduce_hook, figures))
        train(options, model, None, figures)
        return
    import iswitch.ddp

    with iswitch.join() as agent:
        model.register_comm_hook(iswitch.ddp.State(agent, options.timeout), counted(iswitch.ddp.hook, figures))
        try:
            train(options, model, agent, figures)
        except iswitch.Error as error:
            missing = ",".join(map(str, getattr(error, "missing", ())))
            print(f"{type(error).__name__} [{missing}] {error}", file=sys.stderr, flush=True)
            sys.exit(4)
        agent.barrier().wait()


if __name__ == "__main__":
    main()
