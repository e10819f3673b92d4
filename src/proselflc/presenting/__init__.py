"""What people look at: pages and figures of runs."""
