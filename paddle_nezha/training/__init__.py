"""Pre-training and what it needs: text to examples without any framework, and the trainer on Paddle."""
