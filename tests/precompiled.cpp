// Only carries the precompiled libraries: see CMakeLists.txt.
