"""Pre-training: `settings.PretrainingSettings` say what, `trainer.pretrain` does it."""
