r"""Real machines for the tests on this computer: Docker engines and hosts reached over SSH.

    def test_something(laptop, machine, engine, registry, podman):
        host = machine(password="sesame", docker="yes")  # all options: machine.MachineOptions
        laptop.trust_host_keys(host)  # adds its key to ~/.ssh/known_hosts
        laptop.mlw("computetarget", "attach", "remote", …, host.address, input="sesame\n", check=True)
        assert laptop.ssh(host, "docker version").code == 0
        host.cut(); host.heal(); host.reset_connections(); host.slow("1mbit"); host.reboot()
        proxy = host.proxy(latency_ms=50)  # proxy.port on 127.0.0.1; proxy.stall(), .flow(), .cut()
        engine.kill(); engine.start(live_restore=True)
        assert engine.containers() == [] and host.processes() == {}

A Slurm cluster is in slurm.py. Everything starts on first use. Machines and containers are removed after the test,
the engine after the session. Fixtures of a wider scope use `session_engine`, `session_registry`, `module_machine`.
Each pytest process has separate folders and addresses (sandbox.py), so several processes can run in parallel.
"""
