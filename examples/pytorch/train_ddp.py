# torchrun --nproc-per-node 2 train_ddp.py
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

dist.init_process_group("gradwire")  # instead of "gloo"; tensors stay in CPU memory
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
compression = gradwire.torch.compress(ddp, "powersgd:rank=4,ef=ef14", optimizer=optimizer)

torch.manual_seed(100 + dist.get_rank())  # each rank trains on its own samples
for step in range(101):
    inputs = torch.randn(64, 64)
    labels = inputs[:, :10].argmax(dim=1)
    loss = torch.nn.functional.cross_entropy(ddp(inputs), labels)
    optimizer.zero_grad()
    loss.backward()  # averages the gradients, compressed, while it computes
    optimizer.step()
    if step % 20 == 0 and dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.2f}")
sent = compression.stats()
if dist.get_rank() == 0:
    print(f"sent {sent['wire_bytes']:,.0f} bytes; uncompressed: {sent['dense_ring_bytes']:,.0f}")
dist.destroy_process_group()
