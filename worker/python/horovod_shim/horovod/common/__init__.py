"""What programs import of Horovod beside a framework's module."""
