"""A program for Lightning with strategy "ddp": it starts no processes where a launcher has."""
import logging
import os
import warnings

import torch

import lightning

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Sum(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(int(os.environ["RANK"]))
x = torch.randn(64, 3)
data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
trainer = lightning.Trainer(
    strategy="ddp", accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Sum()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everywhere = [torch.empty_like(weights) for _ in range(trainer.world_size)]
torch.distributed.all_gather(everywhere, weights)
assert all(torch.equal(weights, other) for other in everywhere), "the models differ"
environment = type(trainer.strategy.cluster_environment).__name__
print(f"lightning rank {trainer.global_rank} of {trainer.world_size}, local rank "
      f"{trainer.local_rank}, node {trainer.node_rank}, {environment}", flush=True)
torch.distributed.destroy_process_group()
