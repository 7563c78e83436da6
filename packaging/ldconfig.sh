#!/bin/sh
# After a .rpm has come or gone, where no trigger of the distribution does it.
/sbin/ldconfig || true
