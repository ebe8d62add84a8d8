print("hello", flush=True)
