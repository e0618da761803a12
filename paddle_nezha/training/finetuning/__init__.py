"""Fine-tuning: `settings.FinetuneSettings` say what, `trainer.finetune` does it."""
