"""Lightning: a LightningModule fitted in eager PyTorch, and with its network through ORTModule."""

import logging
import sys
import tempfile
import warnings

import lightning
import report
import topics
import torch
from torch.utils.data import DataLoader, TensorDataset

from ortmodule import ORTModule

STEPS, BATCH = 12, 16
COLUMNS = ("input_ids", "attention_mask", "labels")


class Topics(lightning.LightningModule):
    """Tells the topic of a sentence; keeps the loss of each step."""

    def __init__(self, ours: bool = False):
        super().__init__()
        self.bert = topics.small_model()
        if ours:
            self.bert = ORTModule(self.bert)  # the one line
        self.losses = []

    def forward(self, batch):
        return self.bert(**dict(zip(COLUMNS, batch, strict=True))).loss

    def training_step(self, batch, _index):
        loss = self(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, _index):
        self.log("val_loss", self(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def train(ours: bool) -> tuple[list[float], torch.nn.Module]:
    """The losses of each step and of the test set, and the model."""
    model = Topics(ours)
    train_set, test_set = (
        TensorDataset(*(part[k][: STEPS * BATCH // 2] for k in COLUMNS)) for part in topics.split()
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            gradient_clip_val=1.0,
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, DataLoader(train_set, BATCH), DataLoader(test_set, BATCH))
        trainer.save_checkpoint(f"{folder}/last.ckpt")
        Topics.load_from_checkpoint(f"{folder}/last.ckpt", weights_only=True)
    return [*model.losses, trainer.callback_metrics["val_loss"].item()], model


def main() -> int:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    eager, _ = train(ours=False)
    losses, model = train(ours=True)
    return report.compare(eager, losses, model.bert.explain())


if __name__ == "__main__":
    sys.exit(main())
