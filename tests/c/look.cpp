// SPDX-License-Identifier: MIT OR Apache-2.0
// What a C++ program sees of a board: one line for each thing it looked at.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace fs = std::filesystem;

static std::string text_of(const char *path)
{
    std::ifstream in(path);
    if (!in)
        return "(absent)";
    std::string text{std::istreambuf_iterator<char>(in), {}};
    for (char &c : text)
        if (c == '\0' || c == '\n')
            c = ' ';
    return text;
}

int main()
{
    for (const auto &entry : fs::directory_iterator("/dev/accel"))
        std::cout << "entry " << entry.path().string() << " "
                  << (entry.is_character_file() ? "character" : "other") << "\n";
    std::cout << "status " << (fs::is_character_file("/dev/accel/accel0") ? "character" : "other")
              << "\n";
    std::cout << "second " << (fs::exists("/dev/accel/accel1") ? "exists" : "absent") << "\n";
    std::cout << "canonical " << fs::canonical("/dev/accel/../accel/accel0").string() << "\n";
    std::cout << "compatible " << text_of("/proc/device-tree/compatible") << "\n";
    std::cout << "clock " << text_of("/sys/module/rocket/parameters/rocket_npu_clk_hz") << "\n";
    int cores = 0;
    for (const auto &entry : fs::directory_iterator("/sys/bus/platform/drivers/rocket"))
        cores += fs::is_directory(entry.path() / "power");
    std::cout << "cores " << cores << "\n";
    for (const auto &entry : fs::recursive_directory_iterator("/sys/class/accel/accel0/"))
        if (entry.path().filename() == "dev")
            std::cout << "dev " << text_of(entry.path().c_str()) << "\n";
}
