"""What a trained model knows and what its training tells about every label. Pure measures."""
