def pytest_addoption(parser):
    parser.addoption("--every-schedule", action="store_true", help="run the strict grid under all its schedules (long)")
