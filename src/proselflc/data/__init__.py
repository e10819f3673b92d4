"""Data: reading it safely, adding noise reproducibly, and serving batches fast."""
