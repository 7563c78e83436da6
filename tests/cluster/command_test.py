#!/usr/bin/env python3
"""What the command `cluster` says of a supervisor that is going."""
import importlib.machinery
import importlib.util
import os
import socket
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))


def load_command():
    loader = importlib.machinery.SourceFileLoader("cluster_command", os.path.join(HERE, "cluster"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("cluster_command", loader))
    loader.exec_module(module)
    return module


class GoingSupervisor(unittest.TestCase):
    def ask(self, treat):
        """The text of the failure when whoever listens does `treat` with a connection; None: nobody listens."""
        command = load_command()
        with tempfile.TemporaryDirectory() as state, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{state}/control")
            server = None
            if treat:
                listener.listen()
                server = threading.Thread(target=lambda: treat(listener.accept()[0]))
                server.start()
            with self.assertRaises(command.Failure) as caught:
                command.ask(state, "reset")
            if server:
                server.join()
            return str(caught.exception)

    def test_one_that_does_not_listen_does_not_answer(self):
        self.assertIn("no cluster answers", self.ask(None))

    def test_one_that_closes_before_it_has_read_does_not_answer(self):
        def reset(connection):
            connection.recv(1, socket.MSG_PEEK)
            connection.close()  # what is unread resets the connection

        self.assertIn("no cluster answers", self.ask(reset))

    def test_one_that_ends_within_its_answer_does_not_answer(self):
        def half(connection):
            connection.makefile().readline()
            connection.sendall(b'{"ok": tr')
            connection.close()

        self.assertIn("no cluster answers", self.ask(half))

    def test_a_refusal_is_told_as_it_is(self):
        def refuse(connection):
            connection.makefile().readline()
            connection.sendall(b'{"ok": false, "text": "no host s9"}')
            connection.close()

        self.assertEqual("no host s9", self.ask(refuse))


if __name__ == "__main__":
    unittest.main()
