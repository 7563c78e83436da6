// Nothing: a libmunge.so.2 that cannot be used. A program that has loaded it finds no other one.
