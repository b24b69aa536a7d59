"""Lightning: a wrapper in a LightningModule, and one around the whole of it, train as in eager."""

import lightning
import pytest
import torch
import torchmetrics
from torch.nn import functional as F
from torch.utils.data import DataLoader
from twins import CLASSES, close, perceptron, points, same_state, trained_alike

from ortmodule import ORTModule


class Classifier(lightning.LightningModule):
    """Keeps its losses; `inner` is what `wrap` makes of the net."""

    def __init__(self, wrap=lambda module: module):
        super().__init__()
        self.inner = wrap(perceptron())
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=CLASSES)
        self.losses = []

    def forward(self, x):
        return self.inner(x)

    def training_step(self, batch, index):
        x, label = batch
        logits = self(x)
        loss = F.cross_entropy(logits, label)
        self.accuracy(logits, label)
        self.log("loss", loss)
        self.log("accuracy", self.accuracy, on_epoch=True)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch, index):
        x, label = batch
        self.log("val_loss", F.cross_entropy(self(x), label), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def fit(model, folder, **fields):
    trainer = lightning.Trainer(
        **{
            "max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
            "enable_checkpointing": False, "enable_model_summary": False, "num_sanity_val_steps": 1,
            "default_root_dir": str(folder),
        } | fields
    )  # fmt: skip
    trainer.fit(model, DataLoader(points(24), 8), DataLoader(points(8), 4))
    return trainer


FIELDS = {
    "plain": {},
    "accumulate": {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1},
    "summary": {"enable_model_summary": True},
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
def test_fits_as_eager(tmp_path, where, name):
    def train(wrap):
        model = Classifier(wrap) if where == "inside" else wrap(Classifier())
        trainer = fit(model, tmp_path, **FIELDS[name])
        metrics = trainer.callback_metrics
        assert {"loss", "accuracy", "val_loss"} <= metrics.keys()
        return torch.stack([*model.losses, metrics["val_loss"], metrics["accuracy_epoch"]]), model

    trained_alike(train)


@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
def test_checkpoints_are_the_plain_modules(tmp_path, where):
    model = Classifier(ORTModule) if where == "inside" else ORTModule(Classifier())
    trainer = fit(model, tmp_path, enable_checkpointing=True)
    path = str(tmp_path / "last.ckpt")
    trainer.save_checkpoint(path)
    plain = Classifier()
    plain.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
    same_state(plain, model)
    again = ORTModule(Classifier())
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(again, DataLoader(points(24), 8), ckpt_path=path, weights_only=True)
    assert len(again.losses) == 3  # the third epoch
    reference = Classifier()
    fit(reference, tmp_path, max_epochs=3)
    close(torch.stack(again.losses), torch.stack(reference.losses[-3:]), "the losses")


@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
def test_validates_and_predicts(tmp_path):
    found = []
    for wrap in (lambda module: module, ORTModule):
        model = wrap(Classifier())
        trainer = lightning.Trainer(
            accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False
        )
        metrics = trainer.validate(model, DataLoader(points(8), 4), verbose=False)
        model.predict_step = lambda batch, index, model=model: model(batch[0])
        rows = trainer.predict(model, DataLoader(points(8), 4))
        found.append(torch.cat([torch.tensor([metrics[0]["val_loss"]]), *map(torch.flatten, rows)]))
    close(found[1], found[0], "what it validates and predicts")
