#!/bin/sh
# Says where it runs; the smallest program to try a launcher with.
echo "rank $DTRUN_RANK of $DTRUN_SIZE: local rank $DTRUN_LOCAL_RANK of $DTRUN_LOCAL_SIZE on $(uname -n)"
