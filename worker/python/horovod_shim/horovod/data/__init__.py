"""Horovod's data loaders."""

from .data_loader_base import AsyncDataLoaderMixin, BaseDataLoader  # noqa: F401
