"""The judge: paddle_nezha held against torch_ref, stage by stage, forward and backward, with float64 as the truth."""
