"""The shelf: checkpoints that come with a checkout, how they were made, and the jobs that check them."""
