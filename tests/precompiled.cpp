// Only carries the precompiled headers: see CMakeLists.txt.
