#include <parx/data.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::expect_error;
using parx_test::idx_bytes;
using parx_test::scratch_folder;

namespace {

}  // namespace

BOOST_AUTO_TEST_CASE(pixels_become_normalised_floats_and_keep_their_places) {
  const scratch_folder folder;
  (void)folder.write("train-images",
                     idx_bytes({2051, 2, 1, 2}, std::string("\x00\xFF\x33\x66", 4)));
  (void)folder.write("train-labels", idx_bytes({2049, 2}, "\x03\x07"));
  const std::array<std::size_t, 3> indices{1, 0, 1};
  const auto planes = data::image_dataset::from_folder(folder.file(""), data::split::train,
                                                       {.mean = 0.5F, .deviation = 0.25F})
                          .fetch(indices);
  BOOST_TEST((planes.x.shape() == shape{3, 1, 1, 2}));
  const std::array<float, 6> expected{-1.2F, -0.4F, -2.0F, 2.0F, -1.2F, -0.4F};
  BOOST_TEST(planes.x.span() == expected, boost::test_tools::tolerance(1e-5F)
                                              << boost::test_tools::per_element());
  const std::array<std::int64_t, 3> labels{7, 3, 7};
  BOOST_TEST(planes.y.span() == labels, boost::test_tools::per_element());
  const auto flat = data::image_dataset::from_folder(folder.file(""), data::split::train,
                                                     {.shape = data::image_shape::flat})
                        .fetch(indices);
  BOOST_TEST((flat.x.shape() == shape{3, 2}));
}

BOOST_AUTO_TEST_CASE(statistics_are_the_pixels_mean_and_deviation) {
  data::image_bytes images{.count = 1, .rows = 2, .columns = 2, .pixels = {0, 0, 255, 255}};
  auto set = data::image_dataset(images, {0});
  BOOST_TEST(set.statistics().mean == 0.5F);
  BOOST_TEST(set.statistics().deviation == 0.5F);
  const auto scaled =
      std::move(set).with({.shape = data::image_shape::flat, .mean = 0.5F, .deviation = 0.5F});
  const std::array<std::size_t, 1> first{0};
  BOOST_TEST(scaled.fetch(first).x.at(0, 0) == -1.0F);
  BOOST_TEST(scaled.fetch(first).x.at(0, 3) == 1.0F, boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(images_and_labels_that_do_not_fit_are_refused) {
  const scratch_folder folder;
  const auto images = folder.write("images", idx_bytes({2051, 2, 1, 1}, "ab"));
  const auto few = folder.write("few", idx_bytes({2049, 1}, "\x01"));
  expect_error(errc::bad_data, {"/images\" has 2 images", "/few\" has 1 labels"},
               [&] { (void)data::image_dataset::from_idx(images, few); });
  const auto wrong = folder.write("wrong", idx_bytes({2049, 2}, "\x01\x0A"));
  expect_error(errc::bad_data, {"wrong", "image 1 is 10", "0 to 9"},
               [&] { (void)data::image_dataset::from_idx(images, wrong); });
  BOOST_TEST(data::image_dataset::from_idx(images, wrong, {}, 11).size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_folder_without_the_files_or_with_too_many_is_refused) {
  const scratch_folder folder;
  const auto load = [&] {
    (void)data::image_dataset::from_folder(folder.file(""), data::split::train);
  };
  expect_error(errc::io, {"holds 0 files", "train*images*"}, load);
  expect_error(errc::io, {"/nonexistent", "No such file"},
               [] { (void)data::image_dataset::from_folder("/nonexistent", data::split::train); });
  (void)folder.write("train-images-a", "");
  (void)folder.write("train-images-b", "");
  expect_error(errc::io, {"holds 2 files", "train-images-a", "train-images-b"}, load);
}

namespace {
/// A record of CIFAR: the labels, then planes of one value each.
std::string cifar_record(const std::string& labels, const std::string& planes) {
  std::string record = labels;
  for (const char value : planes) record.append(std::size_t{32 * 32}, value);
  return record;
}
}  // namespace

BOOST_AUTO_TEST_CASE(a_folder_of_cifar_10_is_its_batches_in_order) {
  const scratch_folder folder;
  (void)folder.write("data_batch_2.bin", cifar_record("\x09", "ghi"));
  (void)folder.write("data_batch_1.bin", cifar_record("\x03", "abc") + cifar_record("\x04", "def"));
  (void)folder.write("test_batch.bin", cifar_record("\x05", "xyz"));
  (void)folder.write("batches.meta.txt", "airplane");
  const auto train = data::image_dataset::from_folder(folder.file(""), data::split::train);
  BOOST_TEST(train.size() == 3U);
  BOOST_TEST(train.classes() == 10U);
  const std::array<std::size_t, 2> indices{2, 0};
  const auto some = train.fetch(indices);
  BOOST_TEST((some.x.shape() == shape{2, 3, 32, 32}));
  for (std::size_t plane = 0; plane < 3; ++plane) {
    BOOST_TEST(some.x.at(0, plane, 31, 0) == float('g' + int(plane)) / 255,
               boost::test_tools::tolerance(1e-5F));
    BOOST_TEST(some.x.at(1, plane, 0, 31) == float('a' + int(plane)) / 255,
               boost::test_tools::tolerance(1e-5F));
  }
  BOOST_TEST(some.y.at(0) == 9);
  BOOST_TEST(some.y.at(1) == 3);
  BOOST_TEST(data::image_dataset::from_folder(folder.file(""), data::split::test).size() == 1U);
}

BOOST_AUTO_TEST_CASE(classes_without_an_image_to_train_with_are_named) {
  const scratch_folder folder;
  (void)folder.write("data_batch_1.bin",
                     cifar_record("\x03", "abc") + cifar_record("\x04", "def"));
  (void)folder.write("test_batch.bin", cifar_record("\x05", "xyz"));
  std::string said;
  parx::logger::instance().set_sink([&](parx::log_level, std::string_view line) { said += line; });
  (void)data::image_dataset::from_folder(folder.file(""), data::split::test);
  BOOST_TEST(said == "");
  (void)data::image_dataset::from_folder(folder.file(""), data::split::train);
  parx::logger::instance().set_sink(nullptr);
  BOOST_TEST(said.find("of 10 classes 8 have no image to train with: 0, 1, 2, 5, 6, 7, 8, 9") !=
                 std::string::npos,
             said);
}

BOOST_AUTO_TEST_CASE(cifar_100_has_a_coarse_and_a_fine_label) {
  const scratch_folder folder;
  const auto file = folder.write("train.bin", cifar_record("\x13\x63", "abc"));
  const auto fine = data::image_dataset::from_folder(folder.file(""), data::split::train);
  const std::array<std::size_t, 1> first{0};
  BOOST_TEST(fine.classes() == 100U);
  BOOST_TEST(fine.fetch(first).y.at(0) == 99);
  BOOST_TEST(fine.fetch(first).x.at(0, 0, 0, 0) == float('a') / 255,
             boost::test_tools::tolerance(1e-5F));
  const auto coarse = data::image_dataset::from_cifar({file}, data::cifar_labels::cifar100_coarse);
  BOOST_TEST(coarse.classes() == 20U);
  BOOST_TEST(coarse.fetch(first).y.at(0) == 19);
}

BOOST_AUTO_TEST_CASE(a_wrong_cifar_file_is_refused_by_file_and_record) {
  const scratch_folder folder;
  using data::cifar_labels;
  const auto read = [](const std::string& path, cifar_labels kind) {
    return [=] { (void)data::image_dataset::from_cifar({path}, kind); };
  };
  const std::string good = cifar_record("\x03", "abc");
  const auto cut = folder.write("cut.bin", good + good.substr(0, 100));
  expect_error(errc::bad_data,
               {"cut.bin\" holds 3173 bytes", "1 records", "100 bytes more", "cut short"},
               read(cut, cifar_labels::cifar10));
  const auto label = folder.write("label.bin", good + cifar_record("\x0A", "abc"));
  expect_error(errc::bad_data, {"label.bin\": record 1 (at byte 3073) has the label 10", "0 to 9"},
               read(label, cifar_labels::cifar10));
  const auto hundred = folder.write("hundred.bin", cifar_record("\x01\x02", "abc"));
  expect_error(errc::bad_data, {"exactly 1 records of CIFAR-100"},
               read(hundred, cifar_labels::cifar10));
  expect_error(errc::bad_data, {"exactly 1 records of CIFAR-10;"},
               read(folder.write("ten.bin", good), cifar_labels::cifar100));
  expect_error(
      errc::bad_data, {"record 0", "fine label 100"},
      read(folder.write("fine.bin", cifar_record("\x01\x64", "abc")), cifar_labels::cifar100));
  expect_error(errc::bad_data, {"empty.bin\" is empty"},
               read(folder.write("empty.bin", ""), cifar_labels::cifar10));
}

BOOST_AUTO_TEST_CASE(images_to_train_with_are_moved_and_mirrored_by_the_seed) {
  // Each pixel tells where it was: 100 plane + 10 row + column.
  constexpr std::size_t count = 200, side = 5;
  auto images = parx::tensor<float>::empty({count, 2, side, side});
  for (std::size_t i = 0; i < images.size(); ++i) {
    images.data()[i] = float(100 * (i / 25 % 2) + 10 * (i / 5 % 5) + i % 5);
  }
  const data::augmentation changes{.shift = 1, .mirror = data::mirror::allowed};
  const auto changed = data::augmented(images, changes, 7);
  std::set<int> kinds;
  for (std::size_t i = 0; i < count; ++i) {
    const float* const image = changed.data() + i * 50;
    // The middle of the image says what was done; all other pixels must agree.
    const int down = 2 - int(image[12]) / 10;
    const bool mirrored = image[13] < image[12];
    const int right = 2 - (mirrored ? 4 - int(image[12]) % 10 : int(image[12]) % 10);
    kinds.insert((down + 1) * 6 + (right + 1) * 2 + (mirrored ? 1 : 0));
    for (int p = 0; p < 2; ++p) {
      for (int r = 0; r < 5; ++r) {
        for (int c = 0; c < 5; ++c) {
          const int row = std::clamp(r - down, 0, 4), at = std::clamp(c - right, 0, 4);
          const int expected = 100 * p + 10 * row + (mirrored ? 4 - at : at);
          BOOST_TEST_REQUIRE(image[p * 25 + r * 5 + c] == float(expected));
        }
      }
    }
  }
  BOOST_TEST(kinds.size() == 18U);
  const auto same = data::augmented(images, changes, 7),
             other = data::augmented(images, changes, 8);
  BOOST_TEST(std::equal(same.begin(), same.end(), changed.begin()));
  BOOST_TEST(!std::equal(other.begin(), other.end(), changed.begin()));
  auto second = changes;
  second.first_image = 150;  // another rank's
  const auto of_rank = data::augmented(images.slice(0, 150, 200), second, 7);
  BOOST_TEST(std::equal(of_rank.begin(), of_rank.end(), changed.begin() + 150 * 50));
  BOOST_TEST(data::augmented(images, {.shift = 0}, 7).data() == images.data());
  BOOST_CHECK_THROW((void)data::augmented(images.flatten(1), changes, 7), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_table_takes_the_chosen_columns_and_maps_its_classes) {
  const scratch_folder folder;
  const auto path = folder.write("t.csv", "age,kind,height,id\n30,cat,1.5,x1\n4,dog,0.25,x2\n");
  const auto table = data::read_table(
      path, {.label = "kind", .features = {"height", "age"}, .classes = {"dog", "cat"}});
  BOOST_TEST((table.x().shape() == shape{2, 2}));
  BOOST_TEST(table.x().at(0, 0) == 1.5F);
  BOOST_TEST(table.x().at(1, 1) == 4.0F);
  BOOST_TEST(table.y().at(0) == 1);
  BOOST_TEST(table.y().at(1) == 0);
  expect_error(errc::bad_data, {"line 2", "column 4 (id)", "x1"}, [&] {
    (void)data::read_table(path, {.label = "kind", .classes = {"dog", "cat"}});
  });
  expect_error(errc::bad_data, {"line 2", "column 2 (kind)", "cat", "dog, cow"}, [&] {
    (void)data::read_table(path, {.label = "kind", .features = {"age"}, .classes = {"dog", "cow"}});
  });
  expect_error(errc::bad_data, {"cat", "table_options::classes"},
               [&] { (void)data::read_table(path, {.label = "kind", .features = {"age"}}); });
  BOOST_CHECK_THROW((void)data::read_table(path, {.label = "breed"}), usage_error);
  // The second one would have been taken for a feature.
  const auto twice = folder.write("twice.csv", "kind,age,kind\n0,30,0\n");
  BOOST_CHECK_EXCEPTION((void)data::read_table(twice, {.label = "kind"}), usage_error,
                        [](const auto& error) {
                          return std::string(error.what()).find(
                                     "two columns \"kind\", number 1 and number 3") !=
                                 std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(a_table_of_numbers_to_predict_fits_a_model_with_one_output) {
  const scratch_folder folder;
  const auto path = folder.write("t.csv", "rooms,price,age\n3,1.5,10\n4,-2.25,20\n5,1e3,30\n");
  const auto table = data::read_table<float>(path, {.label = "price"});
  BOOST_TEST((table.x().shape() == shape{3, 2}));
  const std::array<std::size_t, 2> rows{2, 1};
  const auto batch = table.fetch(rows);
  BOOST_TEST(batch.size() == 2U);
  BOOST_TEST((batch.y.shape() == shape{2, 1}));
  BOOST_TEST(batch.y.at(0, 0) == 1000.0F);
  BOOST_TEST(batch.y.at(1, 0) == -2.25F);
  BOOST_TEST(batch.x.at(1, 1) == 20.0F);
  expect_error(errc::bad_data, {"line 2", "1.5", "read_table<float>"},
               [&] { (void)data::read_table(path, {.label = "price"}); });
  BOOST_CHECK_THROW((void)data::read_table<float>(path, {}), usage_error);
  BOOST_CHECK_THROW((void)data::read_table<float>(path, {.label = "price", .classes = {"1.5"}}),
                    usage_error);
}

BOOST_AUTO_TEST_CASE(a_table_without_header_is_read_by_column_numbers) {
  const scratch_folder folder;
  const auto path = folder.write("t.tsv", "1\t0.5\n0\t-2\n");
  const auto table =
      data::read_table(path, {.csv = data::tsv(data::csv_header::absent), .label = "0"});
  BOOST_TEST((table.x().shape() == shape{2, 1}));
  BOOST_TEST(table.x().at(1, 0) == -2.0F);
  BOOST_TEST(table.y().at(0) == 1);
  BOOST_CHECK_THROW(
      (void)data::read_table(path, {.csv = data::tsv(data::csv_header::absent), .label = "2"}),
      usage_error);
  BOOST_CHECK_EXCEPTION((void)data::read_table(path, {.csv = data::tsv(), .label = "3"}),
                        usage_error, [](const auto& e) {
                          return std::string(e.what()).find("csv_header::absent") !=
                                 std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(a_file_without_a_header_is_told_how_to_say_so) {
  const scratch_folder folder;
  const auto path = folder.write("iris.csv", "5.1,3.5,0\n4.9,3.0,1\n");
  for (const char* label : {"species", "2"}) {
    const std::string told =
        parx_test::message_of([&] { (void)data::read_table(path, {.label = label}); });
    BOOST_TEST(parx_test::mentions(told, "first line names 5.1, 3.5, 0",
                                   "{.header = csv_header::absent}", "\"0\", \"1\""),
               told);
  }
  // A name that the first record happens to have: the line is lost, and that is told.
  const parx_test::captured_log log;
  (void)data::read_table(path, {.label = "0"});
  BOOST_TEST(parx_test::mentions(log.text(), "iris.csv", "5.1, 3.5, 0",
                                 "{.csv = {.header = csv_header::absent}}"));
  const auto unnamed = folder.write("pandas.csv", "0,1,2\n5,3,1\n");
  BOOST_TEST(data::read_table(unnamed, {.label = "2"}).size() == 1U);
  BOOST_TEST(!parx_test::mentions(log.text(), "pandas.csv"));
  // Names that are none are not taken for a record.
  const auto named = folder.write("named.csv", "a,b\n1,2\n");
  BOOST_TEST(!parx_test::mentions(
      parx_test::message_of([&] { (void)data::read_table(named, {.label = "c"}); }), "absent"));
}

BOOST_AUTO_TEST_CASE(missing_values_are_refused_kept_filled_or_become_the_columns_mean) {
  using data::missing_values;
  const scratch_folder folder;
  const auto path =
      folder.write("t.csv", "a,b,y\n1,NA,0\n,4,1\n5, nan ,0\n?,8,1\n6,N/A,0\nnull,0,1\n");
  const auto read = [&](data::table_options options) {
    options.label = "y";
    return data::read_table(path, options);
  };
  expect_error(
      errc::bad_data,
      {"line 2", "column 2 (b)", "\"NA\" is a missing value", "missing_values::column_mean"},
      [&] { (void)read({}); });
  const auto nan = read({.missing = missing_values::nan});
  const auto filled = read({.missing = missing_values::fill, .fill = -1});
  const auto mean = read({.missing = missing_values::column_mean});
  const std::vector<bool> gaps{false, true,  true,  false, false, true,
                               true,  false, false, true,  true,  false};
  const std::vector<float> values{1, 0, 0, 4, 5, 0, 0, 8, 6, 0, 0, 0};
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const auto at = [i](const auto& table) { return table.x().data()[i]; };
    BOOST_TEST(std::isnan(at(nan)) == gaps[i]);
    if (!gaps[i]) BOOST_TEST(at(nan) == values[i]);
    BOOST_TEST(at(filled) == (gaps[i] ? -1 : values[i]));
    BOOST_TEST(at(mean) == (gaps[i] ? 4 : values[i]));  // (1 + 5 + 6) / 3 and (4 + 8 + 0) / 3
  }
  BOOST_TEST(mean.y().at(5) == 1);
  // A text that is neither is an error all the same, and texts of one's own replace the others.
  const auto other = folder.write("other.csv", "a,y\n-,0\n2,1\n");
  expect_error(errc::bad_data, {"line 2", "\"-\" is not a finite number", "features"}, [&] {
    (void)data::read_table(other, {.label = "y", .missing = missing_values::nan});
  });
  BOOST_TEST(
      data::read_table(
          other, {.label = "y", .missing = missing_values::column_mean, .missing_texts = {"-"}})
          .x()
          .at(0, 0) == 2.0F);
  const auto empty = folder.write("empty.csv", "a,y\nNA,0\n,1\n");
  expect_error(errc::bad_data, {"column 1 (a)", "no line has a value"}, [&] {
    (void)data::read_table(empty, {.label = "y", .missing = missing_values::column_mean});
  });
  const auto unlabelled = folder.write("u.csv", "a,y\n1,0\n2,NA\n");
  expect_error(errc::bad_data, {"line 3", "column 2 (y)", "the label is missing"}, [&] {
    (void)data::read_table<float>(unlabelled, {.label = "y", .missing = missing_values::fill});
  });
}

BOOST_AUTO_TEST_CASE(columns_are_standardised_by_the_training_part_alone) {
  const scratch_folder folder;
  // The last two rows are not of the training part.
  const auto path =
      folder.write("t.csv", "a,b,c,y\n1,7,NA,0\n5,7,-2,1\n1,7,2,0\n5,7,,1\n103,9,6,0\nNA,5,NA,1\n");
  const auto all = data::read_table(path, {.label = "y", .missing = data::missing_values::nan});
  const data::subset training(all, {0, 1, 2, 3});
  data::standardizer scale(training);
  BOOST_TEST(scale.mean().span() == (std::vector<float>{3, 7, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(scale.deviation().span() == (std::vector<float>{2, 1, 2}),
             boost::test_tools::per_element());
  const auto scaled = scale(all);
  const std::vector<float> expected{-1, 0, 0, 1, 0, -1, -1, 0, 1, 1, 0, 0, 50, 2, 3, 0, -2, 0};
  BOOST_TEST(scaled.x().span() == expected, boost::test_tools::per_element());
  BOOST_TEST(scaled.y().at(5) == 1);
  BOOST_TEST(all.x().at(0, 0) == 1.0F);  // as it was
  // Saved and loaded like the state of an optimizer.
  data::standardizer loaded(3);
  std::vector<tensor<float>> saved;
  scale.for_each_state([&](const std::string&, tensor<float>& t) { saved.push_back(t.clone()); });
  loaded.for_each_state([&, next = std::size_t{0}](const std::string&, tensor<float>& t) mutable {
    t.copy_from(saved[next++]);
  });
  BOOST_TEST(loaded(all).x().span() == expected, boost::test_tools::per_element());
  BOOST_CHECK_THROW((void)scale(tensor<float>::zeros({2, 2})), usage_error);
  BOOST_CHECK_THROW(data::standardizer(data::subset(all, {})), usage_error);
  // More samples than are read at a time.
  const auto many = tensor<float>::zeros({10'000, 1});
  for (std::size_t i = 0; i < 10'000; ++i) many.data()[i] = i % 2 == 0 ? 3.0F : 9.0F;
  const data::standardizer of_many(
      data::tensor_dataset<std::int64_t>(many, tensor<std::int64_t>::zeros({10'000})));
  BOOST_TEST(of_many.mean().item() == 6.0F);
  BOOST_TEST(of_many.deviation().item() == 3.0F);
}

BOOST_AUTO_TEST_CASE(a_generated_sample_depends_on_seed_and_number_alone) {
  const data::generated_digits set(1000, {.seed = 5});
  const data::generated_digits window(10, {.seed = 5, .first = 990});
  const std::array<std::size_t, 2> late{995, 3};
  const std::array<std::size_t, 1> early{5};
  const auto a = set.fetch(late);
  const auto b = window.fetch(early);
  BOOST_TEST(std::memcmp(a.x.data(), b.x.data(), 784 * sizeof(float)) == 0);
  BOOST_TEST(a.y.at(0) == b.y.at(0));
  const auto other = data::generated_digits(1000, {.seed = 6}).fetch(late);
  BOOST_TEST(std::memcmp(a.x.data(), other.x.data(), 784 * sizeof(float)) != 0);
}

BOOST_AUTO_TEST_CASE(generated_digits_have_ink_in_the_picture_and_all_classes_equally_often) {
  for (const std::size_t side : {8U, 14U, 28U}) {
    const data::generated_digits set(200, {.side = side});
    std::vector<float> image(side * side);
    std::array<int, 10> seen{};
    for (std::size_t i = 0; i < set.size(); ++i) {
      set.draw(i, image);
      ++seen.at(static_cast<std::size_t>(set.label(i)));
      int bright = 0;
      for (const float pixel : image) {
        BOOST_REQUIRE(pixel >= 0 && pixel <= 1);
        bright += pixel > 0.5F ? 1 : 0;
      }
      // Nearly every digit covers between 2 % and half of the picture.
      BOOST_TEST(bright < static_cast<int>(side * side) / 2);
    }
    for (const int count : seen) BOOST_TEST(count == 20);
  }
  BOOST_CHECK_THROW(data::generated_digits(1, {.side = 7}), usage_error);
}

BOOST_AUTO_TEST_CASE(
    nearest_class_means_tell_generated_digits_apart_better_than_chance_but_not_well) {
  // A bound on both sides without any training: the classes differ, and no template matches them.
  const data::generated_digits train(3000);
  const data::generated_digits test(1000, {.first = 3000});
  std::vector<float> image(784);
  std::vector<std::vector<float>> means(10, std::vector<float>(784));
  for (std::size_t i = 0; i < train.size(); ++i) {
    train.draw(i, image);
    auto& mean = means[static_cast<std::size_t>(train.label(i))];
    for (std::size_t p = 0; p < 784; ++p) mean[p] += image[p] / 300;
  }
  int right = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    test.draw(i, image);
    std::array<float, 10> distance{};
    for (std::size_t c = 0; c < 10; ++c) {
      for (std::size_t p = 0; p < 784; ++p)
        distance[c] += (image[p] - means[c][p]) * (image[p] - means[c][p]);
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == test.label(i)
                 ? 1
                 : 0;
  }
  BOOST_TEST_MESSAGE("nearest class mean: " << right / 10.0 << " %");
  BOOST_TEST(right > 400);
  BOOST_TEST(right < 850);
}

BOOST_AUTO_TEST_CASE(mnist_loads_from_a_folder_of_packed_files) {
  for (const char* name : {"mnist", "fashion-mnist"}) {
    const auto folder = parx_test::real_data(name);
    if (!folder) continue;
    const auto set = data::image_dataset::from_folder(*folder, data::split::test);
    BOOST_TEST(set.size() == 10'000U);
    const std::array<std::size_t, 2> some{0, 9'999};
    BOOST_TEST((set.fetch(some).x.shape() == shape{2, 1, 28, 28}));
    const auto train = data::image_dataset::from_folder(*folder, data::split::train);
    // Published: MNIST 0.1307 and 0.3081, Fashion-MNIST 0.2860 and 0.3530, over their training
    // images.
    const bool is_fashion = std::string_view(name) == "fashion-mnist";
    BOOST_TEST(train.statistics().mean == (is_fashion ? 0.2860F : 0.1307F),
               boost::test_tools::tolerance(0.02F));
    BOOST_TEST(train.statistics().deviation == (is_fashion ? 0.3530F : 0.3081F),
               boost::test_tools::tolerance(0.02F));
  }
}
