"""`python -m proselflc` is `proselflc`."""

from proselflc.app.cli import main

if __name__ == "__main__":
    main()
