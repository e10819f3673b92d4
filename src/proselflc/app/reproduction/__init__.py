"""The paper's tables and figures by their numbers, from runs that are kept."""
