"""Real machines for the tests, on this one computer: Docker engines and hosts reached by SSH.

    def test_something(laptop, machine, engine, registry, podman):
        host = machine(password="sesame", docker="yes")  # all options: machine.Wanted
        laptop.knows(host)  # its key is in ~/.ssh/known_hosts
        laptop.mlw("computetarget", "attach", "remote", …, host.address, input="sesame\\n", check=True)
        assert laptop.ssh(host, "docker version").code == 0
        host.cut(); host.heal(); host.reset_connections(); host.slow("1mbit"); host.reboot()
        door = host.proxy(latency_ms=50)  # door.port on 127.0.0.1; door.stall(), .flow(), .cut()
        engine.kill(); engine.start(live_restore=True)
        assert engine.containers() == [] and host.processes() == {}

Nothing starts before a test asks for it; everything is gone after the test (machines, containers) or after the session
(the engine). Fixtures of a wider scope take `session_engine`, `session_registry`, `module_machine`. Each pytest process
has a place of its own (place.py), so several may run at once.
"""
