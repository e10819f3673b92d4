"""`python -m proselflc`, the same as `proselflc`."""

import gc


def main() -> None:
    """Run the command line."""
    gc.set_threshold(50_000)  # reading options makes many small objects, none of them garbage
    from proselflc.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
