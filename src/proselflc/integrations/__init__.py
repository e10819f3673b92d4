"""Integrations with other libraries; each file needs the library that it is named after."""
