// Tables are read from CSV and LibSVM, whole or in parts, and what is wrong is named.
#include <parx/trees/read.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <data/support.hpp>

#include <parx/trees/training_rows.hpp>

namespace {

namespace trees = parx::trees;
using parx_test::scratch_folder;
using trees::table;

constexpr float missing = std::numeric_limits<float>::quiet_NaN();

void has_values(const table& rows, const std::vector<float>& wanted) {
  BOOST_TEST_REQUIRE(rows.values.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool same =
        std::isnan(wanted[i]) ? std::isnan(rows.values[i]) : rows.values[i] == wanted[i];
    BOOST_TEST(same, "value " << i << " is " << rows.values[i] << ", not " << wanted[i]);
  }
}

/// The message of reading this text.
std::string refusal(const std::string& text, const trees::read_options& options = {}) {
  const scratch_folder folder;
  try {
    (void)trees::read(folder.write("a.csv", text), options);
  } catch (const std::exception& failure) {
    std::string said = failure.what();
    const std::string path = folder.file("a.csv");
    for (std::size_t at = said.find(path); at != said.npos; at = said.find(path)) {
      said.replace(at, path.size(), "a.csv");
    }
    return said;
  }
  return "not refused";
}

std::string row_of_file(const std::string& path, std::int64_t row) {
  return "\"" + path + "\", row " + std::to_string(row + 1);
}

/// The parts of all ranks, one behind the other; those of `group` begin at their rows.
table read_in_parts(const std::string& path, int ranks, const trees::read_options& options) {
  std::vector<table> parts(static_cast<std::size_t>(ranks));
  const std::string failure = jobs::run(jobs::kind::inproc, ranks, [&](parx::process_group& world) {
    parts[static_cast<std::size_t>(world.rank())] = trees::read(world, path, options);
  });
  BOOST_TEST(failure == "");
  table all = parts.front();
  if (!all.group.empty()) all.group.pop_back();
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const table& next = parts[i];
    BOOST_TEST((next.categories == all.categories));
    BOOST_TEST((next.kinds == all.kinds));
    BOOST_TEST((next.names == all.names));
    if (next.rows > 0) {
      BOOST_TEST(next.row_name(0) == row_of_file(path, all.rows));
    }
    append(all.values, next.values);
    append(all.label, next.label);
    append(all.weight, next.weight);
    const auto entries = static_cast<std::int64_t>(all.column.size());
    for (std::size_t row = 1; row < next.row_begin.size(); ++row) {
      all.row_begin.push_back(next.row_begin[row] + entries);
    }
    append(all.column, next.column);
    append(all.value, next.value);
    for (const std::int64_t begin : next.group) {
      if (begin < next.rows) all.group.push_back(begin + all.rows);
    }
    all.rows += next.rows;
    all.columns = std::max(all.columns, next.columns);
  }
  if (!all.group.empty()) all.group.push_back(all.rows);
  return all;
}

bool equal(const table& a, const table& b) {
  const auto same_bits = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](float p, float q) {
             return p == q || (std::isnan(p) && std::isnan(q));
           });
  };
  return a.rows == b.rows && a.columns == b.columns && same_bits(a.values, b.values) &&
         a.label == b.label && a.weight == b.weight && a.group == b.group &&
         a.row_begin == b.row_begin && a.column == b.column && a.value == b.value &&
         a.categories == b.categories;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_csv_with_and_without_a_header) {
  const scratch_folder folder;
  const std::string header =
      folder.write("header.csv", "age,\"job, now\",y\r\n1.5, 2e3 ,0\n\n\"-4\",+3,1");
  const table named = trees::read(header, {.label = "y"});
  has_values(named, {1.5F, 2000, -4, 3});
  BOOST_TEST(named.label == (std::vector<float>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(named.names == (std::vector<std::string>{"age", "job, now"}),
             boost::test_tools::per_element());
  BOOST_TEST(named.columns == 2);
  BOOST_TEST(named.row_name(1) == "\"" + header + "\", row 2");
  const table plain = trees::read(folder.write("plain", "1\t2\t\t9\n0\tNA\t4\t8\n"),
                                  {.weight = 3, .missing = {"", "NA"}});
  has_values(plain, {2, missing, missing, 4});
  BOOST_TEST(plain.weight == (std::vector<float>{9, 8}), boost::test_tools::per_element());
  BOOST_TEST(plain.names.empty());
  has_values(trees::read(folder.write_gzip("x.gz", "1;2;3\n"), {.delimiter = ';', .ignore = {1}}),
             {3});
  const table unlabelled = trees::read(header, {.label = {}});
  BOOST_TEST(unlabelled.label.empty());
  BOOST_TEST(unlabelled.columns == 3);
  has_values(trees::read(folder.write("tiny", "0,1e-50,-1E-60,16777217\n")), {0, -0.0F, 16777216});
}

BOOST_AUTO_TEST_CASE(categories_have_the_codes_of_their_sorted_texts) {
  const scratch_folder folder;
  const std::string path = folder.write(
      "train.csv", "job,size,level,y\ncook,1,30,no\nactor,2,7,yes\n?,3,7,no\ncook,4,?,yes.\n");
  const trees::read_options options{
      .label = "y", .classes = {"no", "yes"}, .categorical = {"job", "level"}};
  const table train = trees::read(path, options);
  has_values(train, {1, 1, 30, 0, 2, 7, missing, 3, 7, 1, 4, missing});
  BOOST_TEST(train.categories[0] == (std::vector<std::string>{"actor", "cook"}),
             boost::test_tools::per_element());
  BOOST_TEST(train.categories[2].empty());  // whole numbers are codes
  BOOST_TEST(train.label == (std::vector<float>{0, 1, 0, 1}), boost::test_tools::per_element());
  // A later table has the codes of the first.
  trees::read_options like = options;
  like.like = &train;
  const std::string test =
      folder.write("test.csv", "job,size,level,y\nbaker,1,9,no\ncook,2,7,no\n");
  has_values(trees::read(test, like), {missing, 1, 9, 1, 2, 7});
  like.header = trees::header_line::present;
  const std::string other = folder.write("other.csv", "work,size,level,y\ncook,1,9,no\n");
  BOOST_CHECK_THROW((void)trees::read(other, like), parx::error);
}

BOOST_AUTO_TEST_CASE(whole_numbers_are_the_codes_of_categories_also_with_a_point) {
  const scratch_folder folder;  // as pandas writes a column of integers with gaps
  const table rows = trees::read(folder.write("a.csv", "y,c\n1,10.0\n0,\n1,2.0\n0,9\n"),
                                 {.label = "y", .categorical = {"c"}});
  has_values(rows, {10, missing, 2, 9});
  BOOST_TEST(rows.categories.empty());
}

BOOST_AUTO_TEST_CASE(libsvm_rows_with_weights_queries_and_comments) {
  const scratch_folder folder;
  const table rows = trees::read(folder.write(
      "a.txt", "1:2.5 qid:7 3:1 1:0.5 # a comment\n0:1 qid:7\n2:1 qid:9 0:-1e2 4:0\n"));
  BOOST_TEST(rows.sparse());
  BOOST_TEST(rows.rows == 3);
  BOOST_TEST(rows.columns == 5);
  BOOST_TEST(rows.at(0, 1) == 0.5F);
  BOOST_TEST(rows.at(0, 3) == 1.0F);
  BOOST_TEST(std::isnan(rows.at(1, 3)));
  BOOST_TEST(rows.at(2, 4) == 0.0F);
  BOOST_TEST(rows.weight == (std::vector<float>{2.5F, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST(rows.group == (std::vector<std::int64_t>{0, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_parts_of_any_number_of_ranks_are_the_file) {
  const scratch_folder folder;
  std::string csv = "a,b,y\n", libsvm, queries, sizes;
  for (int row = 0; row < 61; ++row) {
    csv += std::string(1, static_cast<char>('a' + row * 7 % 11)) + "," + std::to_string(row * row) +
           "," + std::to_string(row % 2) + (row % 5 == 0 ? "\n\n" : "\n");
    libsvm +=
        std::to_string(row) + " " + std::to_string(row % 9) + ":" + std::to_string(row) + "\n";
    queries +=
        std::to_string(row / 10) + "," + std::to_string(row) + "," + std::to_string(row) + "\n";
    if (row % 10 == 9) sizes += "10\n";
  }
  sizes += "1\n";
  const trees::read_options categorical{.label = "y", .categorical = {"a"}};
  const trees::read_options by_query{.label = 1, .query = 0};
  trees::read_options by_file;
  by_file.query_file = folder.write("sizes", sizes);
  struct one_file {
    std::string path;
    trees::read_options options;
  };
  const one_file files[] = {{folder.write("a.csv", csv), categorical},
                            {folder.write_gzip("a.csv.gz", csv), categorical},
                            {folder.write("a.svm", libsvm), {}},
                            {folder.write("q.csv", queries), by_query},
                            {folder.write_gzip("b.svm.gz", libsvm), by_file}};
  for (const auto& [path, options] : files) {
    const table whole = trees::read(path, options);
    BOOST_TEST(whole.rows == 61);
    if (options.query || !options.query_file.empty()) BOOST_TEST(whole.group.size() == 8U);
    for (const int ranks : {1, 2, 3, 8}) {
      BOOST_TEST(equal(read_in_parts(path, ranks, options), whole), path << ", " << ranks);
    }
  }
  // More ranks than bytes in a line: some have no rows.
  const std::string two = folder.write("two.csv", "1,22222222222222222222222\n0,3\n");
  BOOST_TEST(equal(read_in_parts(two, 8, {}), trees::read(two)));
  // A folder's files are dealt out.
  const scratch_folder parts;
  (void)parts.write("1.csv", "1,2\n0,3\n"), (void)parts.write("2.csv", "0,4\n");
  (void)parts.write_gzip("3.csv", "1,5\n");
  const std::string path = std::filesystem::path(parts.file("x")).parent_path().string();
  const table dealt = trees::read(path);
  has_values(dealt, {2, 3, 4, 5});
  BOOST_TEST(dealt.row_name(2) == "\"" + parts.file("2.csv") + "\", row 1");
  std::vector<float> labels;
  for (const int ranks : {2, 5}) {
    std::vector<table> of_ranks(static_cast<std::size_t>(ranks));
    jobs::run(jobs::kind::inproc, ranks, [&](parx::process_group& world) {
      of_ranks[static_cast<std::size_t>(world.rank())] = trees::read(world, path);
    });
    std::vector<float> values;
    for (const table& each : of_ranks) {
      values.insert(values.end(), each.values.begin(), each.values.end());
    }
    BOOST_TEST(values == dealt.values, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_one_sentence_with_file_line_and_column) {
  const auto says = [](const std::string& said, const std::string& wanted) {
    BOOST_TEST(said.starts_with(wanted), said << " is not " << wanted);
  };
  says(refusal("a,b,y\n1,2,0\n1,x,0\n", {.label = "y"}),
       "\"a.csv\", line 3, column 2 (b): \"x\" is not a finite number; name");
  says(refusal("1,2\n0,1e99\n"), "\"a.csv\", line 2, column 2: \"1e99\" is not a finite number");
  says(refusal("1,2\n\n0,3,4\n"), "\"a.csv\", line 3: the row has 3 fields, the first line");
  says(refusal("1,2\n0,\"3\n4\"\n"), "\"a.csv\", line 2: a quote is not closed on its line");
  says(refusal("1,2\n?,3\n"), "\"a.csv\", line 2, column 1: \"?\" is no label; leave the row out");
  says(refusal("1,2\nyes,3\n"),
       "\"a.csv\", line 2, column 1: \"yes\" is a label that is no number");
  says(refusal("no,2\nmaybe,3\n", {.classes = {"no", "yes"}}),
       "\"a.csv\", line 2, column 1: \"maybe\" is none of the classes no, yes");
  says(refusal("1,2,0\n", {.weight = 2}),
       "\"a.csv\", line 1, column 3: \"0\" is a weight that is no number above 0");
  says(refusal("1,2,a\n1,2,b\n0,3,a\n", {.query = 2}),
       "\"a.csv\", line 3: the rows of query \"a\" do not follow each other");
  says(refusal("1 2:3\n0 2:x\n"), "\"a.csv\", line 2: \"2:x\" is not column:value");
  says(refusal("1 2:3 2:4\n"), "\"a.csv\", line 1: column 2 has two values");
  says(refusal("1 2:3\n0 -1:3\n"), "\"a.csv\", line 2: \"-1:3\" is not column:value");
  says(refusal("1 2:3\nx 2:3\n"), "\"a.csv\", line 2: the label \"x\" is not a finite number");
  says(refusal("1 qid:1 2:3\n0 2:3\n"), "\"a.csv\", line 2: some rows have a qid");
  says(refusal(""), "\"a.csv\" has no rows");
  says(refusal("a,b\n"), "\"a.csv\" has no rows");
  says(refusal("a,b\n1,2\n", {.label = "c"}), "\"a.csv\" has no column \"c\"");
  says(refusal("1,2\n", {.label = 2}), "\"a.csv\" has 2 columns, so there is no column 2");
  BOOST_CHECK_THROW((void)trees::read("/nowhere.csv"), parx::error);
}

BOOST_AUTO_TEST_CASE(a_mistake_on_one_rank_is_named_on_all_with_its_line_in_the_file) {
  const scratch_folder folder;
  std::string text;
  for (int row = 0; row < 100; ++row) text += row == 71 ? "0,oh\n" : "1,22\n";
  const std::string path = folder.write("a.csv", text);
  const auto failures = jobs::run_collecting(
      jobs::kind::inproc, 3, [&](parx::process_group& world) { (void)trees::read(world, path); });
  for (const std::string& failure : failures) {
    BOOST_TEST(failure.find("a.csv\", line 72, column 2: \"oh\" is not") != failure.npos, failure);
  }
  // A label out of range is found when training begins, by its row in the file.
  const std::string labels = folder.write("b.csv", "0,1\n1,2\n0,1\n1,2\n3,4\n");
  const auto refused = jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& world) {
    const table rows = trees::read(world, labels);
    (void)trees::number_rows(world, rows, trees::logistic{});
  });
  for (const std::string& failure : refused) {
    BOOST_TEST(
        failure.find("b.csv\", row 5: the label is 3, not a number from 0 to 1") != failure.npos,
        failure);
  }
}
